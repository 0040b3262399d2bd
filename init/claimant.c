/*
 * What a login as `claim` leads to, on a box that nobody has claimed: passes one claim on to init
 * and prints the answer.  Anybody on the network may start it, so it has a user of its own, and no
 * file, before it looks at what was said.
 *
 *   ssh claim@BOX CODE ssh-ed25519 KEY NAME [viewer|operator|admin]
 */
#include "config/box.h"
#include "init/client.h"
#include "init/confine.h"

#include <stdio.h>
#include <string.h>

static struct client client; /* large: it holds a whole answer */

static int usage(void)
{
    printf("ssh claim@BOX CODE ssh-ed25519 KEY NAME [viewer|operator|admin]\n"
           "the code stands on the box's serial line; for example:\n"
           "ssh claim@BOX CODE \"$(cat ~/.ssh/id_ed25519.pub)\"\n");
    return 2;
}

int main(int argc, char **argv)
{
    char line[CONSOLE_LINE_BYTES + 1], answer[CONSOLE_LINE_BYTES];
    struct text typed = text_over(line, sizeof line), said = text_over(answer, sizeof answer);
    struct request request;
    if (confine_process() != 0 || confine_no_files() != 0)
        return 2;
    if (argc != 3 || strcmp(argv[1], "-c") != 0)
        return usage();
    text_printf(&typed, "claim ");
    text_add(&typed, argv[2], strlen(argv[2]));
    if (typed.cut || !request_from_line(&request, typed.data, typed.len) || request.count < 5)
        return usage();
    enum client_result result = client_ask(&client, BOX_CLAIM_SOCK, &request, CONSOLE_ANSWER_MS);
    if (result != CLIENT_ANSWERED) {
        printf("claim: %s\n", client_result_text(result));
        return 1;
    }
    text_add_printable(&said, client.answer.text.data, client.answer.text.len);
    printf("%s\n", said.data);
    return client.answer.ok ? 0 : 1;
}
