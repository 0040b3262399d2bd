/* The JSON form of log probabilities. */
#include "engine/api/logprobs.h"

#include "engine/base/json.h"

/* JSON has no infinity: what OpenAI says for a token that can not be. */
#define LOGPROB_MIN (-9999.0f)

/* The members of one token, without the closing brace. */
static void dump_token(struct buf *out, const struct tokenizer *tokenizer,
                       const struct token_logprob *token)
{
    struct detokenizer detokenizer = {0};
    struct buf text = {0};
    size_t n;
    const char *bytes = tokenizer_token_bytes(tokenizer, token->id, &n);
    detokenizer_push(&detokenizer, tokenizer, token->id, &text);
    detokenizer_finish(&detokenizer, &text);
    buf_puts(out, "{\"token\":");
    json_dump_string(out, text.len == 0 ? "" : text.data, text.len);
    buf_free(&text);
    /* Not >: what is no number is no probability either. */
    float logprob = token->logprob >= LOGPROB_MIN ? token->logprob : LOGPROB_MIN;
    buf_printf(out, ",\"logprob\":%.7g,\"bytes\":[", (double)logprob);
    for (size_t i = 0; i < n; i++)
        buf_printf(out, i == 0 ? "%d" : ",%d", (unsigned char)bytes[i]);
    buf_puts(out, "]");
}

void logprobs_dump(struct buf *out, const struct tokenizer *tokenizer,
                   const struct token_logprob *tokens, int32_t n_top)
{
    dump_token(out, tokenizer, tokens);
    buf_puts(out, ",\"top_logprobs\":[");
    for (int32_t i = 1; i <= n_top; i++) {
        if (i > 1)
            buf_puts(out, ",");
        dump_token(out, tokenizer, &tokens[i]);
        buf_puts(out, "}");
    }
    buf_puts(out, "]}");
}
