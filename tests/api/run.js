// The suite `api`, TAP on stdout.
//   node --test-reporter=tap tests/api/run.js [--engine FILE] [--model DIR] [--part NAME]...
//   node --test-reporter=tap tests/api/run.js --url URL --key KEY --smoke    a server that runs already
import { after } from "node:test";
import { parseArgs } from "node:util";
import { anthropic } from "./anthropic.js";
import { answers } from "./answers.js";
import { canary } from "./canary.js";
import { clients } from "./clients.js";
import { contract } from "./contract.js";
import { errors } from "./errors.js";
import { formats } from "./formats.js";
import { lifecycle } from "./lifecycle.js";
import { limits } from "./limits.js";
import { load } from "./load.js";
import { metrics } from "./metrics.js";
import { receipts } from "./receipts.js";
import { responses } from "./responses.js";
import { scripted } from "./scripted.js";
import { smoke } from "./smoke.js";
import { attach, start, stop } from "./target.js";
import { tools } from "./tools.js";

const { values: flags } = parseArgs({ options: {
  engine: { type: "string", default: "build/engine" },
  model: { type: "string", default: "rootfs/models/demo" },
  url: { type: "string" },
  key: { type: "string" },
  smoke: { type: "boolean", default: false },
  part: { type: "string", multiple: true },
} });

const program = { engine: flags.engine, model: flags.model };
// Parts that talk to one server, and parts that start their own.
const SHARED = { smoke, answers, errors, formats, anthropic, responses, limits, tools };
const OWN = { metrics, receipts, lifecycle, scripted, contract, clients, canary };
const ASKED_FOR = { load }; // takes minutes
const chosen = flags.part ?? [...Object.keys(SHARED), ...Object.keys(OWN)];

if (flags.url) {
  smoke(attach(flags.url, flags.key));
} else {
  const server = await start(program);
  after(() => stop(server));
  for (const name of chosen) await (SHARED[name]?.(server, program) ?? { ...OWN, ...ASKED_FOR }[name]?.(program));
}
