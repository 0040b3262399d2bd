/*
 * The end of a process that cannot go on computing: a device has failed, a rank does not come.  One
 * line that says why goes to stderr and to whoever asked for it; nobody's clean-up runs, since it
 * would wait for what has failed.  Not for broken invariants (kernels/check.h), nor for input.
 */
#ifndef V4BOX_KERNELS_FAULT_H
#define V4BOX_KERNELS_FAULT_H

#ifdef __cplusplus
extern "C" {
#define FAULT_NORETURN [[noreturn]]
#else
#define FAULT_NORETURN _Noreturn
#endif

/** Ends the process with status 1.  Of several threads the first one speaks. */
FAULT_NORETURN void fault_end(const char *format, ...) __attribute__((format(printf, 1, 2)));

/** Who is given the line, without its end, in front of the end; borrowed.  NULL: nobody. */
void fault_tell(void (*listener)(void *user, const char *line), void *user);

#ifdef __cplusplus
}
#endif

#endif
