/* What a request may ask of the sampler. */
#include "engine/model/sampler.h"

#include <math.h>

enum status sampling_check(const struct sampling *s, struct error *err)
{
    /* Written so that NaN fails. */
    if (!(s->temperature >= 0 && s->temperature < INFINITY))
        return error_set(err, ERR_INPUT, "temperature: must be a number of at least 0");
    if (!(s->top_p > 0 && s->top_p <= 1))
        return error_set(err, ERR_INPUT, "top_p: must be above 0 and at most 1");
    if (!(s->min_p >= 0 && s->min_p <= 1))
        return error_set(err, ERR_INPUT, "min_p: must be between 0 and 1");
    if (s->top_k < 0)
        return error_set(err, ERR_INPUT, "top_k: must be at least 0");
    if (!(s->presence_penalty >= -2 && s->presence_penalty <= 2))
        return error_set(err, ERR_INPUT, "presence_penalty: must be between -2 and 2");
    if (!(s->frequency_penalty >= -2 && s->frequency_penalty <= 2))
        return error_set(err, ERR_INPUT, "frequency_penalty: must be between -2 and 2");
    if (!(s->repetition_penalty >= 0 && s->repetition_penalty <= 2))
        return error_set(err, ERR_INPUT, "repetition_penalty: must be above 0 and at most 2");
    return OK;
}
