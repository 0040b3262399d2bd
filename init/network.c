/* Addresses of the box. */
#include "init/network.h"

#include "config/box.h"
#include "init/journal.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <net/route.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define POLL_MS 20 /* between two looks for the card */

static struct ifreq request_for(const char *interface)
{
    struct ifreq r;
    memset(&r, 0, sizeof r);
    snprintf(r.ifr_name, sizeof r.ifr_name, "%s", interface);
    return r;
}

static void set_address(struct sockaddr *where, uint32_t address)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = address};
    memcpy(where, &in, sizeof in);
}

static bool bring_up(int socket_fd, const char *interface)
{
    struct ifreq r = request_for(interface);
    if (ioctl(socket_fd, SIOCGIFFLAGS, &r) != 0)
        return false;
    r.ifr_flags |= IFF_UP;
    return ioctl(socket_fd, SIOCSIFFLAGS, &r) == 0;
}

bool network_loopback(void)
{
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return false;
    bool up = bring_up(fd, "lo"); /* the kernel gives it 127.0.0.1 by itself */
    close(fd);
    return up;
}

bool network_wait(const char *interface, int64_t timeout_ms)
{
    int64_t end_ms = clock_ms() + timeout_ms;
    while (if_nametoindex(interface) == 0) {
        if (clock_ms() >= end_ms)
            return false;
        usleep(POLL_MS * 1000);
    }
    return true;
}

/* A dotted address; of a list separated by blanks the first. */
static bool parse_address(const char *text, uint32_t *out)
{
    char first[INET_ADDRSTRLEN];
    struct in_addr address;
    size_t n = text == NULL ? 0 : strcspn(text, " ");
    if (n == 0 || n >= sizeof first)
        return false;
    memcpy(first, text, n);
    first[n] = '\0';
    if (inet_pton(AF_INET, first, &address) != 1)
        return false;
    *out = address.s_addr;
    return true;
}

bool lease_parse(struct lease *out, const char *event, const char *ip, const char *subnet,
                 const char *router)
{
    struct lease lease = {.bound = true};
    if (strcmp(event, "deconfig") == 0) {
        *out = (struct lease){.bound = false};
        return true;
    }
    if (strcmp(event, "bound") != 0 && strcmp(event, "renew") != 0)
        return false;
    if (!parse_address(ip, &lease.address) || !parse_address(subnet, &lease.netmask))
        return false;
    if (router != NULL && router[0] != '\0' && !parse_address(router, &lease.router))
        return false;
    *out = lease;
    return true;
}

/* The length behind the slash as a mask; 0 and above 30 leave no neighbours. */
static bool parse_length(const char *text, uint32_t *mask)
{
    uint32_t length = 0;
    if (text[0] == '\0' || strlen(text) > 2)
        return false;
    for (; *text != '\0'; text++) {
        if (*text < '0' || *text > '9')
            return false;
        length = length * 10 + (uint32_t)(*text - '0');
    }
    if (length < 1 || length > 30)
        return false;
    *mask = htonl(UINT32_MAX << (32 - length));
    return true;
}

/* One that a machine may have, or a router. */
static bool is_host(uint32_t address)
{
    uint32_t first = ntohl(address) >> 24;
    return first != 0 && first != 127 && first < 224;
}

bool lease_from_text(struct lease *out, const char *address, const char *router)
{
    char text[INET_ADDRSTRLEN];
    struct lease lease = {.bound = true};
    const char *slash = strchr(address, '/');
    size_t n = slash == NULL ? 0 : (size_t)(slash - address);
    if (n == 0 || n >= sizeof text || strpbrk(address, " ") != NULL)
        return false;
    memcpy(text, address, n);
    text[n] = '\0';
    if (!parse_address(text, &lease.address) || !parse_length(slash + 1, &lease.netmask) ||
        !is_host(lease.address))
        return false;
    if (router[0] != '\0' && (strchr(router, ' ') != NULL ||
                              !parse_address(router, &lease.router) || !is_host(lease.router)))
        return false;
    *out = lease;
    return true;
}

static bool add_default_route(int socket_fd, uint32_t router)
{
    struct rtentry route;
    memset(&route, 0, sizeof route);
    set_address(&route.rt_dst, INADDR_ANY);
    set_address(&route.rt_genmask, INADDR_ANY);
    set_address(&route.rt_gateway, router);
    route.rt_flags = RTF_UP | RTF_GATEWAY;
    return ioctl(socket_fd, SIOCADDRT, &route) == 0 || errno == EEXIST;
}

static bool apply(int socket_fd, const char *interface, const struct lease *lease)
{
    struct ifreq r = request_for(interface);
    set_address(&r.ifr_addr, lease->bound ? lease->address : INADDR_ANY);
    if (!bring_up(socket_fd, interface) || ioctl(socket_fd, SIOCSIFADDR, &r) != 0)
        return false;
    if (!lease->bound)
        return true;
    set_address(&r.ifr_netmask, lease->netmask);
    if (ioctl(socket_fd, SIOCSIFNETMASK, &r) != 0)
        return false;
    return lease->router == 0 || add_default_route(socket_fd, lease->router);
}

/* Taking the address away takes its routes along. */
bool network_set(const char *interface, const struct lease *lease)
{
    static const struct lease NONE = {.bound = false};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return false;
    bool good = apply(fd, interface, &NONE) && apply(fd, interface, lease);
    int code = errno;
    close(fd);
    errno = code;
    return good;
}

int network_dhcp_event(int argc, char **argv)
{
    struct lease lease;
    const char *event = argc == 2 ? argv[1] : "";
    /* The environment is udhcpc's interface to its script; nothing else here reads it. */
    if (!lease_parse(&lease, event, getenv("ip"), getenv("subnet"), getenv("router"))) {
        fprintf(stderr, "dhcp-event: event '%.16s' ignored\n", event);
        return 0;
    }
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || !apply(fd, BOX_INTERFACE, &lease)) {
        fprintf(stderr, "dhcp-event: %s: %s\n", BOX_INTERFACE, strerror(errno));
        return 1;
    }
    close(fd);
    char address[INET_ADDRSTRLEN] = "";
    inet_ntop(AF_INET, &lease.address, address, sizeof address);
    if (lease.bound)
        fprintf(stderr, "dhcp-event: %s has %s\n", BOX_INTERFACE, address);
    return 0;
}
