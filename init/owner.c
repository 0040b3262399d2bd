/* Whose the box is. */
#include "init/owner.h"

#include "config/box.h"
#include "init/changes.h"
#include "init/commands.h"
#include "init/sshkeys.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define TOLD_BYTES 512 /* four lines */

void owner_claimed(struct owner *o)
{
    o->claimed = true;
    claim_close(&o->claim);
    unlink(BOX_CLAIM_SOCK); /* who is there already hears that it is closed */
}

/* The one request of the claim's own socket: claim CODE TYPE KEY NAME [ROLE] */
static void handle(void *context, const struct request *request, struct text *answer)
{
    struct owner *o = context;
    enum role role = ROLE_ADMIN;
    const char(*word)[CONTROL_WORD_BYTES + 1] = request->word;
    const char *said = "claim CODE ssh-ed25519 KEY NAME [viewer|operator|admin]", *wrong = said;
    if ((request->count == 5 || request->count == 6) && strcmp(word[0], "claim") == 0 &&
        (request->count == 5 || role_parse(word[5], &role))) {
        enum claim_result result = claim_try(&o->claim, word[1], clock_ms());
        if (result == CLAIM_WRONG)
            journal_printf(o->journal, "init", "a claim with a wrong code");
        said = claim_result_text(result);
        wrong = result == CLAIM_RIGHT
                    ? ssh_keys_add(BOX_AUTHORIZED, word[2], word[3], word[4], role)
                    : said;
    }
    if (wrong == NULL) {
        journal_printf(o->journal, "init", "claimed by %s", word[4]);
        changes_add(BOX_CHANGES, word[4], role_name(role), "claimed the box");
        owner_claimed(o);
    } else {
        said = wrong;
    }
    answer_write(answer, wrong == NULL, said, strlen(said), NULL, 0);
}

static void tell(const struct owner *o, struct text *t, const char *end)
{
    text_printf(t, "This box is nobody's yet. Whoever has this code claims it, with a key:%s", end);
    text_printf(t, "  ssh claim@ADDRESS CODE \"$(cat ~/.ssh/id_ed25519.pub)\"%s", end);
    text_printf(t, "or types here: ssh-keys add ssh-ed25519 KEY NAME%sclaim code: ", end);
    claim_show(&o->claim, t);
    text_printf(t, "%s", end);
}

void owner_tell(const struct owner *o, struct text *answer)
{
    char bytes[TOLD_BYTES];
    struct text t = text_over(bytes, sizeof bytes);
    if (!o->claim.open)
        text_printf(&t, "%s\n", claim_result_text(CLAIM_CLOSED));
    else
        tell(o, &t, "\n");
    answer_write(answer, true, t.data, t.len, NULL, 0);
}

void owner_open(struct owner *o, bool claimed, struct journal *journal)
{
    char bytes[TOLD_BYTES];
    struct text t = text_over(bytes, sizeof bytes);
    o->claimed = claimed;
    o->journal = journal;
    control_init(&o->control);
    if (claimed)
        return;
    if (!claim_open(&o->claim, clock_ms()) ||
        !control_open(&o->control, BOX_CLAIM_SOCK, BOX_UID_CLAIM, handle, o)) {
        journal_printf(journal, "init", "the box can not be claimed over SSH: %s", strerror(errno));
        claim_close(&o->claim);
        return;
    }
    tell(o, &t, "\r\n");
    int fd = open(BOX_SERIAL, O_WRONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 || write(fd, t.data, t.len) != (ssize_t)t.len)
        journal_printf(journal, "init", "%s: %s", BOX_SERIAL, strerror(errno));
    if (fd >= 0)
        close(fd);
}
