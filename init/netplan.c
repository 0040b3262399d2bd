/* The network as it is set, and as it is tried. */
#include "init/netplan.h"

#include <errno.h>
#include <string.h>

bool netplan_open(struct netplan *p, const char *path)
{
    *p = (struct netplan){.path = path};
    bool good = settings_load(&p->saved, path);
    p->now = p->saved;
    return good;
}

const char *netplan_change(struct netplan *p, const struct settings *to, int try_s, int64_t now_ms)
{
    const char *wrong = settings_check(to);
    if (wrong != NULL)
        return wrong;
    if (try_s == 0 && !settings_save(to, p->path))
        return strerror(errno);
    if (try_s == 0)
        p->saved = *to;
    p->now = *to;
    p->trying = try_s > 0;
    p->revert_ms = now_ms + (int64_t)try_s * 1000;
    p->applied = false;
    return NULL;
}

const char *netplan_confirm(struct netplan *p)
{
    if (!p->trying)
        return "nothing is being tried";
    if (!settings_save(&p->now, p->path))
        return strerror(errno);
    p->saved = p->now;
    p->trying = false;
    return NULL;
}

enum netplan_action netplan_turn(struct netplan *p, bool dhcp_lives, int64_t now_ms)
{
    if (p->trying && now_ms >= p->revert_ms) {
        p->now = p->saved;
        p->trying = p->applied = false;
    }
    bool dhcp = strcmp(p->now.value[SETTING_NET_MODE], "dhcp") == 0;
    if (dhcp != dhcp_lives)
        return dhcp ? NETPLAN_START_DHCP : NETPLAN_STOP_DHCP;
    return dhcp || p->applied ? NETPLAN_NOTHING : NETPLAN_SET_ADDRESS;
}

void netplan_done(struct netplan *p)
{
    p->applied = true;
}
