/* In which order a slot is written. */
#include "init/install.h"

#include <stddef.h>

const char *install_run(const struct install *i)
{
    static const uint8_t NOTHING[BUNDLE_HEADER_BYTES];
    const char *wrong = i->put_header(i->context, NOTHING);
    if (wrong == NULL && i->put_payload != NULL)
        wrong = i->put_payload(i->context);
    if (wrong == NULL)
        wrong = i->put_program(i->context, i->program, i->program_bytes);
    return wrong != NULL ? wrong : i->put_header(i->context, i->header);
}
