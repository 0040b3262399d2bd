/* The page of a report: tables, heat maps and curves as plain HTML and SVG. */
#include "engine/audit/report.h"

#include "engine/audit/report_fields.h"

#include <math.h>

static void put_escaped(struct buf *out, const char *text)
{
    for (const char *c = text; *c != '\0'; c++) {
        switch (*c) {
        case '<':
            buf_puts(out, "&lt;");
            break;
        case '>':
            buf_puts(out, "&gt;");
            break;
        case '&':
            buf_puts(out, "&amp;");
            break;
        case '"':
            buf_puts(out, "&quot;");
            break;
        default:
            buf_add(out, c, 1);
        }
    }
}

static void put_cell(struct buf *out, const char *tag, const char *text)
{
    buf_printf(out, "<%s>", tag);
    put_escaped(out, text);
    buf_printf(out, "</%s>", tag);
}

/* The class is one of ours, whatever the report says. */
static void put_verdict(struct buf *out, const char *verdict)
{
    buf_printf(out, "<span class=%s>", audit_verdict_name(audit_verdict_parse(verdict)));
    put_escaped(out, verdict);
    buf_puts(out, "</span>");
}

static void put_number(struct buf *out, double value)
{
    if (isnan(value))
        buf_puts(out, "<td></td>");
    else
        buf_printf(out, "<td class=n>%.4g</td>", value);
}

/* ---- grids: share right by two coordinates --------------------------------------------------- */

/* White to red: nothing lost to everything lost; a word tells what a colour-blind reader needs. */
static void put_heat(struct buf *out, struct json_object *cell)
{
    double n = report_number(cell, "n"), right = report_number(cell, "right");
    if (isnan(n) || n <= 0) {
        buf_puts(out, "<td class=n>-</td>");
        return;
    }
    double share = right / n;
    buf_printf(out,
               "<td class=\"n heat\" style=\"background:hsl(%.0f 70%% %.0f%%)\">%.0f/%.0f</td>",
               120 * share, 70 + 15 * share, right, n);
}

static void put_grid(struct buf *out, struct json_object *grid)
{
    struct json_object *columns = report_member(grid, "columns");
    struct json_object *lines = report_member(grid, "lines");
    put_cell(out, "h4", report_string(grid, "title"));
    buf_puts(out, "<table><tr><th></th>");
    for (size_t i = 0; i < report_count(columns); i++)
        put_cell(out, "th", json_object_get_string(json_object_array_get_idx(columns, i)));
    buf_puts(out, "</tr>");
    for (size_t i = 0; i < report_count(lines); i++) {
        struct json_object *line = json_object_array_get_idx(lines, i);
        struct json_object *cells = report_member(line, "cells");
        buf_puts(out, "<tr>");
        put_cell(out, "th", report_string(line, "label"));
        for (size_t j = 0; j < report_count(cells); j++)
            put_heat(out, json_object_array_get_idx(cells, j));
        buf_puts(out, "</tr>");
    }
    buf_puts(out, "</table>\n");
}

/* ---- curves: a value over the position, logarithmic upwards ---------------------------------- */

enum { CURVE_WIDTH = 600, CURVE_HEIGHT = 160, CURVE_DECADES = 8 };

static void put_curve(struct buf *out, struct json_object *curve)
{
    struct json_object *y = report_member(curve, "y"), *x = report_member(curve, "x");
    size_t n = report_count(y);
    put_cell(out, "h4", report_string(curve, "title"));
    buf_printf(out, "<svg viewBox=\"0 0 %d %d\" role=img><path d=\"M", CURVE_WIDTH, CURVE_HEIGHT);
    for (size_t i = 0; i < n; i++) {
        /* 1 on top, 1e-8 and below at the bottom */
        double value = json_object_get_double(json_object_array_get_idx(y, i));
        double down = value > 0 ? fmin(fmax(-log10(value), 0), CURVE_DECADES) : CURVE_DECADES;
        buf_printf(out, "%s%.1f %.1f", i == 0 ? "" : "L",
                   (double)CURVE_WIDTH * (double)(i + 1) / (double)(n + 1),
                   CURVE_HEIGHT * down / CURVE_DECADES);
    }
    buf_puts(out, "\"/></svg><table><tr><th>position</th>");
    for (size_t i = 0; i < report_count(x); i++)
        put_cell(out, "td", json_object_get_string(json_object_array_get_idx(x, i)));
    buf_puts(out, "</tr><tr><th>value</th>");
    for (size_t i = 0; i < n; i++)
        put_number(out, json_object_get_double(json_object_array_get_idx(y, i)));
    buf_puts(out, "</tr></table>\n");
}

/* ---- sections -------------------------------------------------------------------------------- */

static void put_test(struct buf *out, struct json_object *test)
{
    const char *verdict = report_string(test, "verdict");
    struct json_object *grids = report_member(test, "grids"),
                       *curves = report_member(test, "curves");
    struct json_object *numbers = report_member(test, "numbers");
    buf_puts(out, "<section><h3>");
    put_verdict(out, verdict);
    buf_puts(out, " ");
    put_escaped(out, report_string(test, "name"));
    buf_puts(out, "</h3><p>");
    report_put_estimate(test, out);
    buf_printf(out, ", n %.0f, gate ", report_number(test, "n"));
    put_escaped(out, report_string(test, "gate"));
    buf_puts(out, "</p><p>");
    put_escaped(out, report_string(test, "why"));
    buf_puts(out, "</p>\n");
    if (numbers != NULL && json_object_object_length(numbers) > 0) {
        buf_puts(out, "<table>");
        json_object_object_foreach(numbers, name, value)
        {
            buf_puts(out, "<tr>");
            put_cell(out, "th", name);
            put_number(out, json_object_get_double(value));
            buf_puts(out, "</tr>");
        }
        buf_puts(out, "</table>\n");
    }
    for (size_t i = 0; i < report_count(grids); i++)
        put_grid(out, json_object_array_get_idx(grids, i));
    for (size_t i = 0; i < report_count(curves); i++)
        put_curve(out, json_object_array_get_idx(curves, i));
    buf_puts(out, "</section>\n");
}

/* A table of objects: one column a key. */
static void put_table(struct buf *out, const char *title, struct json_object *list,
                      const char *const *keys, int n_keys)
{
    if (report_count(list) == 0)
        return;
    put_cell(out, "h3", title);
    buf_puts(out, "<table><tr>");
    for (int k = 0; k < n_keys; k++)
        put_cell(out, "th", keys[k]);
    buf_puts(out, "</tr>");
    for (size_t i = 0; i < report_count(list); i++) {
        struct json_object *item = json_object_array_get_idx(list, i);
        buf_puts(out, "<tr>");
        for (int k = 0; k < n_keys; k++)
            put_cell(out, "td", report_string(item, keys[k]));
        buf_puts(out, "</tr>");
    }
    buf_puts(out, "</table>\n");
}

static const char STYLE[] =
    "body{font:15px/1.4 system-ui,sans-serif;max-width:60em;margin:2em auto;padding:0 1em}"
    "table{border-collapse:collapse;margin:.5em 0}td,th{padding:.2em .6em;border:1px solid #ccc;"
    "text-align:left;font-weight:normal}th{background:#f3f3f3}.n{text-align:right;"
    "font-variant-numeric:tabular-nums}svg{width:100%;max-width:600px;border:1px solid #ccc}"
    "path{fill:none;stroke:#06c;stroke-width:2}span{padding:.1em .5em;color:#fff;background:#555}"
    ".PASS{background:#187a2f}.FAIL{background:#b3261e}.INVALID{background:#8a4b00}"
    "section{border-top:1px solid #ccc;margin-top:1em}";

void report_html(struct json_object *report, struct json_object *history, struct buf *out)
{
    static const char *const row_keys[] = {"row",   "value",     "kind", "leg",
                                           "state", "witnessed", "why"};
    static const char *const rank_keys[] = {"row", "value", "kl", "top1_loss", "exposure", "tier"};
    static const char *const try_keys[] = {"stage", "prefill", "decode", "reuse", "verdict"};
    static const char *const state_keys[] = {"leg",      "ways",  "differ",
                                             "position", "layer", "position_in_layer"};
    static const char *const anchor_keys[] = {"what",      "made_by", "profile", "n",
                                              "kl",        "kl_most", "gate",    "same_top",
                                              "same_bits", "holds"};
    static const char *const past_keys[] = {"id",   "time",   "state",  "verdict",
                                            "what", "budget", "profile"};
    struct json_object *tests = report_member(report, "tests");
    struct json_object *isolation = report_member(report, "isolation");
    struct buf head = {0};
    buf_puts(out,
             "<!doctype html><html lang=en><meta charset=utf-8><title>v4box audit</title><style>");
    buf_puts(out, STYLE);
    buf_puts(out, "</style><h1>v4box audit: ");
    put_verdict(out, report_string(report, "verdict"));
    buf_puts(out, "</h1><pre>");
    report_text(report, &head);
    put_escaped(out, buf_cstr(&head));
    buf_puts(out, "</pre>\n");
    for (size_t i = 0; i < report_count(tests); i++) {
        struct json_object *test = json_object_array_get_idx(tests, i);
        put_test(out, test);
        put_table(out, "Carried state", report_member(test, "state"), state_keys, 6);
        put_table(out, "Held against", report_member(test, "anchors"), anchor_keys, 10);
    }
    put_table(out, "What each row costs", report_member(report, "ranking"), rank_keys, 6);
    put_table(out, "Isolation", report_member(isolation, "tries"), try_keys, 5);
    put_table(out, "Carried state", report_member(isolation, "state"), state_keys, 6);
    put_table(out, "History", history, past_keys, 7);
    put_table(out, "Rows", report_member(report, "rows"), row_keys, 7);
    buf_puts(out, "</html>\n");
    buf_free(&head);
}
