/*
 * Addresses of the box: loopback, the wait for the network card, static ones, and what udhcpc's
 * answers do.
 * Parses no packets: udhcpc does that in its own process and calls dhcp-event, a second name of
 * init, which takes nothing but dotted addresses.
 */
#ifndef V4BOX_INIT_NETWORK_H
#define V4BOX_INIT_NETWORK_H

#include <stdbool.h>
#include <stdint.h>

/** Brings loopback up.  @err false with errno */
bool network_loopback(void);

/** Waits at most `timeout_ms` for a network interface to appear. */
bool network_wait(const char *interface, int64_t timeout_ms);

/* What a DHCP event says, checked. */
struct lease {
    bool bound;                        /* false: take the address away */
    uint32_t address, netmask, router; /* network byte order; router 0: none */
};

/**
 * Reads an event of udhcpc: its name and the variables that udhcpc's interface passes (NULL: not
 * given).  Only the first router counts.  @err false: unknown event or malformed address
 */
bool lease_parse(struct lease *out, const char *event, const char *ip, const char *subnet,
                 const char *router);

/**
 * Reads what an operator typed: a.b.c.d/LENGTH, and a router or "".
 * @err false: malformed, or no address that a machine may have
 */
bool lease_from_text(struct lease *out, const char *address, const char *router);

/** Gives the interface this address and this router and no other.  @err false with errno */
bool network_set(const char *interface, const struct lease *lease);

/** The program dhcp-event: argv[1] is the event.  Returns the exit code. */
int network_dhcp_event(int argc, char **argv);

#endif
