/* What the box's own programs read from a disk, the firmware, the network or an operator; the first
 * byte says as what.  Bytes behind a signature or a checksum are given one, or nothing would get
 * past it. */
#include "tests/fuzz/fuzz.h"

#include "init/bundle.h"
#include "init/keyfile.h"
#include "init/network.h"
#include "init/secure.h"
#include "init/settings.h"
#include "init/slots.h"
#include "init/sntp.h"
#include "init/support.h"
#include "init/syslog.h"
#include "init/top.h"
#include "init/uki.h"

#include <sodium.h>

#define TEXT_BYTES 8192

static uint8_t public[BUNDLE_KEY_BYTES], secret[BUNDLE_SECRET_BYTES];

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    static const uint8_t SEED[crypto_sign_SEEDBYTES] = {7};
    (void)argc;
    (void)argv;
    ASSERT(sodium_init() >= 0);
    crypto_sign_seed_keypair(public, secret, SEED);
    return 0;
}

static bool printable(const char *text)
{
    for (; *text != '\0'; text++)
        if (*text < ' ' || *text > '~')
            return false;
    return true;
}

static void try_bundle(const uint8_t *data, size_t n)
{
    uint8_t header[BUNDLE_HEADER_BYTES] = "V4BOXUP1";
    struct bundle b;
    ASSERT(bundle_check_header(&b, data, n, public) != NULL); /* nobody signed it */
    memcpy(header + 72, data, n < sizeof header - 72 ? n : sizeof header - 72);
    crypto_sign_detached(header + 8, NULL, header + 72, sizeof header - 72, secret);
    if (bundle_check_header(&b, header, sizeof header, public) != NULL)
        return;
    ASSERT(strcmp(b.board, UPDATE_BOARD) == 0 && b.version[0] != '\0' && printable(b.version));
    ASSERT(b.program_bytes > 0 && b.program_bytes <= UPDATE_BYTES_MAX && b.floor <= b.sequence);
    ASSERT(b.payload_bytes <= PAYLOAD_BYTES_MAX);
    ASSERT(n >= b.program_bytes || bundle_check_program(&b, data, n) != NULL);
}

static void try_program(const uint8_t *data, size_t n)
{
    struct verity v;
    const uint8_t *bytes;
    size_t len;
    bool named;
    if (uki_section(data, n, ".linux", &bytes, &len) == UKI_FOUND)
        ASSERT(bytes >= data && bytes + len <= data + n);
    if (uki_payload(&v, &named, data, n) == NULL && named)
        ASSERT(v.blocks > 0 && strlen(v.root) == VERITY_HEX_CHARS && v.version[0] != '\0');
}

static void try_settings(const uint8_t *data, size_t n)
{
    static char bytes[TEXT_BYTES];
    struct text t = text_over(bytes, sizeof bytes), out;
    struct settings s, again;
    struct slots_state state;
    char listed[TEXT_BYTES];
    ASSERT(!settings_good((const char *)data, n) || n > 16);
    text_add(&t, data, n);
    keyfile_seal(&t);
    if (settings_parse(&s, t.data, t.len)) {
        ASSERT(settings_check(&s) == NULL);
        out = text_over(listed, sizeof listed);
        settings_list(&s, &out);
        ASSERT(!out.cut);
        for (int i = 0; i < SETTING_COUNT; i++)
            ASSERT(printable(s.value[i]));
        again = s;
        ASSERT(settings_set(&again, "hostname", s.value[SETTING_HOSTNAME]) == NULL);
    }
    if (slots_state_parse(&state, t.data, t.len)) {
        ASSERT(state.good >= SLOT_NONE && state.good < SLOT_COUNT);
        ASSERT(state.tries >= 0 && printable(state.version) && printable(state.outcome));
        struct slots slots = {.state = state};
        slots_decide(&slots, SLOT_NONE, SLOT_NONE);
        ASSERT(slots.running >= 0 && slots.running < SLOT_COUNT);
    }
}

static void try_secure(const uint8_t *data, size_t n)
{
    struct secure_keys keys;
    if (!secure_keys_parse(&keys, data, n))
        return;
    ASSERT(keys.certificate > data && keys.certificate + keys.certificate_bytes <= data + n);
    for (int i = 0; i < SECURE_PARTS; i++)
        ASSERT(keys.part[i] >= data && keys.part[i] + keys.part_bytes[i] <= data + n);
}

static void try_firmware(const uint8_t *data, size_t n)
{
    char text[64];
    uint8_t guid[EFI_GUID_BYTES];
    (void)efi_option_is(data, n, "v4box a");
    if (efi_text(text, sizeof text, data, n))
        ASSERT(strlen(text) < sizeof text && printable(text));
    (void)efi_guid_parse(guid, (const char *)data, n);
}

static void try_address(const uint8_t *data, size_t n)
{
    char address[64], router[64] = "";
    struct lease lease;
    const uint8_t *newline = memchr(data, '\n', n);
    size_t first = newline == NULL ? n : (size_t)(newline - data);
    snprintf(address, sizeof address, "%.*s", (int)first, (const char *)data);
    if (newline != NULL)
        snprintf(router, sizeof router, "%.*s", (int)(n - first - 1), (const char *)newline + 1);
    if (lease_from_text(&lease, address, router))
        ASSERT(lease.bound && lease.address != 0 && lease.netmask != 0);
}

/* A packet of a time server, and what is decided after it. */
static void try_time(const uint8_t *data, size_t n)
{
    const int64_t now_us = (CLOCK_FLOOR_S + 1000) * 1000000;
    uint8_t packet[2 * SNTP_BYTES] = {0};
    struct sntp_sample sample;
    struct sntp_clock clock = {.right = true};
    ASSERT(n >= SNTP_BYTES || sntp_answer(&sample, data, n, 7, now_us, now_us + 1) == SNTP_FOREIGN);
    memcpy(packet, data, n < sizeof packet ? n : sizeof packet);
    memset(packet + 24, 0, 8); /* the cookie: nobody guesses it */
    packet[31] = 7;
    if (sntp_answer(&sample, packet, sizeof packet, 7, now_us, now_us + 1000) != SNTP_GOOD)
        return;
    ASSERT(sample.delay_us >= 0 && sample.delay_us <= CLOCK_DELAY_MAX_US);
    ASSERT(sntp_plausible((now_us + sample.offset_us) / 1000000 - 2) || sample.offset_us < 0);
    for (int i = 0; i < 2; i++)
        if (sntp_decide(&clock, &sample) == SNTP_STEP)
            ASSERT(sample.offset_us >= -CLOCK_STEP_MAX_US && sample.offset_us <= CLOCK_STEP_MAX_US);
}

/* A line of the log on its way to others, and an answer of the engine on its way to the screen. */
static void try_lines(const uint8_t *data, size_t n)
{
    static char bytes[4 * TEXT_BYTES];
    static struct top top;
    struct syslog_target target;
    char word[64];
    size_t line = n < LOG_LINE_BYTES ? n : LOG_LINE_BYTES;
    struct text t = text_over(bytes, sizeof bytes);
    syslog_message(&t, (const char *)data, line, "box", 0, n % 2 == 0);
    ASSERT(!t.cut && t.len > line / 2);
    snprintf(word, sizeof word, "%.*s", (int)(n < 63 ? n : 63), (const char *)data);
    if (syslog_target_parse(&target, word))
        ASSERT(target.port != 0);
    t = text_over(bytes, sizeof bytes);
    support_mask(&t, (const char *)data, n < TEXT_BYTES ? n : TEXT_BYTES);
    ASSERT(!t.cut);
    top_add(&top, (const char *)data, n, 1 + top.last_ms);
    t = text_over(bytes, sizeof bytes);
    top_draw(&top, &t);
    ASSERT(!t.cut && printable(top.model) && printable(top.audit));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static void (*const TRY[])(const uint8_t *data, size_t n) = {
        try_bundle,  try_settings, try_secure, try_firmware,
        try_address, try_time,     try_lines,  try_program,
    };
    if (n > 0)
        TRY[data[0] % (sizeof TRY / sizeof TRY[0])](data + 1, n - 1);
    return 0;
}
