// Rules for `engine-scripted` (tests/scripted/main.c): what the model is made to say, and when.
const MARK = "\u0001", THINK_CLOSE = "\u0002";

const parameter = ([name, value]) => typeof value === "string"
  ? `<${MARK}parameter name="${name}" string="true">${value}</${MARK}parameter>\n`
  : `<${MARK}parameter name="${name}" string="false">${JSON.stringify(value)}</${MARK}parameter>\n`;

/** One tool call, as the model writes it. */
export const call = (name, args) =>
  `<${MARK}invoke name="${name}">\n${Object.entries(args).map(parameter).join("")}</${MARK}invoke>\n`;

/** The block around calls. */
export const calls = (...list) => `\n\n<${MARK}tool_calls>\n${list.join("")}</${MARK}tool_calls>`;

/** Reasoning in front of what follows. */
export const thinks = (reasoning, rest) => reasoning + THINK_CLOSE + rest;
