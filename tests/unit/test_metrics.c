/*
 * What answers add to the counts, and that the page is what Prometheus reads: every line, every
 * histogram.
 */
#include "engine/api/metrics.h"

#include "config/limits.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Of the second one nothing can be told: what it is called is no bus. */
static const struct gauges GPUS = {
    .n = 2,
    .gpu = {{.bus = "0000:41:00.0",
             .value = {[GAUGE_TEMPERATURE] = 91, [GAUGE_POWER] = 312500, [GAUGE_BUSY] = -1}},
            {.bus = "0\"} 7\nx", .value = {[GAUGE_TEMPERATURE] = 92}}}};

static const struct metrics_sample SAMPLE = {
    .model = "deepseek-v4-demo",
    .profile = "official",
    .profile_hash = "0123",
    .running = 3,
    .prompt_tokens = 700,
    .heat = {.celsius = {54, GAUGE_UNKNOWN, 91}, .alarm = {false, false, true}},
    .gpus = &GPUS};

static char *page_of(struct metrics *metrics)
{
    struct buf out = {0};
    metrics_dump(metrics, &SAMPLE, &out);
    buf_cstr(&out);
    return out.data;
}

/* The value of the one line that begins like this, up to the blank before its value. */
static double value_of(const char *page, const char *series)
{
    const char *at = strstr(page, series);
    if (at == NULL || (at > page && at[-1] != '\n') || at[strlen(series)] != ' ')
        fail_msg("no %s", series);
    assert_null(strstr(at + 1, series));
    return strtod(at + strlen(series), NULL);
}

#define LABELS "model_name=\"deepseek-v4-demo\",engine=\"0\""

static void answers(void **state)
{
    struct metrics *metrics = metrics_create();
    (void)state;
    metrics_answer(metrics, &(struct metrics_answer){.finish = METRICS_STOP,
                                                     .profile = profile_builtin("fast"),
                                                     .started_ms = 1,
                                                     .first_token_ms = 100,
                                                     .last_token_ms = 1100,
                                                     .ended_ms = 1101,
                                                     .prompt_tokens = 700,
                                                     .answer_tokens = 11});
    metrics_answer(metrics, &(struct metrics_answer){.finish = METRICS_ABORT,
                                                     .profile = profile_builtin("official"),
                                                     .ended_ms = 1000000000});
    metrics_error(metrics, API_RATE);
    metrics_error(metrics, API_RATE);
    metrics_request(metrics, 0, 5);
    metrics_request(metrics, 3, 0);
    char *page = page_of(metrics);
    static const struct {
        const char *series;
        double value;
    } ROWS[] = {
        {"vllm:num_requests_running{" LABELS "}", 3},
        {"vllm:num_requests_waiting{" LABELS "}", 0},
        {"vllm:prompt_tokens_total{" LABELS "}", 700},
        {"vllm:request_success_total{" LABELS ",finished_reason=\"stop\"}", 1},
        {"vllm:request_success_total{" LABELS ",finished_reason=\"abort\"}", 1},
        {"vllm:request_success_total{" LABELS ",finished_reason=\"length\"}", 0},
        {"v4box_errors_total{" LABELS ",error=\"RATE\"}", 2},
        {"v4box_unknown_fields_total{" LABELS "}", 3},
        {"v4box_control_texts_total{" LABELS "}", 5},
        {"v4box_errors_total{" LABELS ",error=\"ENGINE\"}", 0},
        {"v4box_profile_info{" LABELS ",profile=\"official\",hash=\"0123\"}", 1},
        /* a bound belongs to its bucket */
        {"vllm:time_to_first_token_seconds_bucket{" LABELS ",le=\"0.075\"}", 0},
        {"vllm:time_to_first_token_seconds_bucket{" LABELS ",le=\"0.1\"}", 1},
        {"vllm:time_to_first_token_seconds_bucket{" LABELS ",le=\"+Inf\"}", 1},
        {"vllm:time_to_first_token_seconds_sum{" LABELS "}", 0.1},
        {"vllm:time_to_first_token_seconds_count{" LABELS "}", 1}, /* the other had none */
        {"vllm:request_time_per_output_token_seconds_sum{" LABELS "}", 0.1},
        {"vllm:e2e_request_latency_seconds_bucket{" LABELS ",le=\"2560\"}", 1},
        {"vllm:e2e_request_latency_seconds_bucket{" LABELS ",le=\"+Inf\"}", 2},
        {"vllm:request_prompt_tokens_sum{" LABELS "}", 700},
        {"vllm:request_generation_tokens_bucket{" LABELS ",le=\"1\"}", 1},
        {"vllm:request_generation_tokens_bucket{" LABELS ",le=\"20\"}", 2},
        {"v4box_temperature_celsius{" LABELS ",sensor=\"cpu\"}", 54},
        {"v4box_temperature_alarm{" LABELS ",sensor=\"cpu\"}", 0},
        {"v4box_temperature_alarm{" LABELS ",sensor=\"gpu\"}", 1},
        {"v4box_gpu_temperature_celsius{" LABELS ",gpu=\"0000:41:00.0\"}", 91},
        {"v4box_gpu_power_milliwatts{" LABELS ",gpu=\"0000:41:00.0\"}", 312500},
    };
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++)
        assert_true(value_of(page, ROWS[i].series) == ROWS[i].value);
    assert_null(strstr(page, "sensor=\"disk\"} 18446744073709551615"));
    assert_null(strstr(page, "v4box_gpu_busy_percent{"));
    assert_null(strstr(page, "} 92\n"));
    free(page);
    metrics_destroy(metrics);
}

/* Families come once, with help and type in front; buckets only grow and end at the count. */
static void well_formed(void **state)
{
    struct metrics *metrics = metrics_create();
    char *families[100], family[128] = "";
    int n = 0;
    double last = 0;
    (void)state;
    for (int i = 0; i < 1000; i++)
        metrics_answer(metrics, &(struct metrics_answer){.profile = profile_builtin("official"),
                                                         .started_ms = 1 + i * i,
                                                         .first_token_ms = 2 + i * i,
                                                         .last_token_ms = 3 + 2 * i * i,
                                                         .ended_ms = 4 + 3 * i * i,
                                                         .prompt_tokens = i * 1000,
                                                         .answer_tokens = i});
    char *page = page_of(metrics), *rest = page, *line;
    while ((line = strsep(&rest, "\n")) != NULL && *line != '\0') {
        if (sscanf(line, "# HELP %127[a-z0-9:_] ", family) == 1) {
            for (int i = 0; i < n; i++)
                assert_string_not_equal(families[i], family);
            assert_true(n < 100);
            families[n++] = strdup(family);
            last = 0;
            continue;
        }
        if (line[0] == '#') {
            assert_memory_equal(line + 7, family, strlen(family));
            continue;
        }
        assert_memory_equal(line, family, strlen(family));
        const char *end = strrchr(line, ' ');
        assert_non_null(end);
        double value = strtod(end, NULL);
        if (strstr(line, "_bucket{") != NULL) {
            assert_true(value >= last);
            last = value;
        } else if (strstr(line, "_count{") != NULL) {
            assert_true(value == last);
        }
    }
    assert_true(n > 20);
    for (int i = 0; i < n; i++)
        free(families[i]);
    free(page);
    metrics_destroy(metrics);
}

/* Each state of a profile has counts of its own, up to a limit; nothing is lost beyond it. */
static void answers_by_profile(void **state)
{
    struct metrics *metrics = metrics_create();
    struct profile p = *profile_builtin("fast");
    char series[256];
    (void)state;
    for (int i = 0; i < METRICS_PROFILES_MAX + 10; i++) {
        snprintf(p.name, sizeof p.name, "own-%d", i / 2);
        p.hash = 0x1000u + (uint64_t)i;
        for (int n = 0; n < 2; n++)
            metrics_answer(metrics, &(struct metrics_answer){.profile = &p, .answer_tokens = 3});
    }
    char *page = page_of(metrics);
    for (int i = 0; i < METRICS_PROFILES_MAX; i++) {
        snprintf(series, sizeof series,
                 "v4box_profile_answers_total{" LABELS ",profile=\"own-%d\",hash=\"%016x\"}", i / 2,
                 0x1000u + (unsigned)i);
        assert_true(value_of(page, series) == 2);
    }
    assert_true(value_of(page, "v4box_profile_answers_total{" LABELS
                               ",profile=\"other\",hash=\"\"}") == 20);
    assert_true(
        value_of(page, "v4box_profile_tokens_total{" LABELS ",profile=\"other\",hash=\"\"}") == 60);
    free(page);
    metrics_destroy(metrics);
}

static void nothing_is_counted_without(void **state)
{
    (void)state;
    metrics_answer(NULL, &(struct metrics_answer){.finish = METRICS_STOP});
    metrics_error(NULL, API_RATE);
    metrics_request(NULL, 1, 1);
    metrics_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers),
        cmocka_unit_test(well_formed),
        cmocka_unit_test(answers_by_profile),
        cmocka_unit_test(nothing_is_counted_without),
    };
    return cmocka_run_group_tests_name("metrics", tests, NULL, NULL);
}
