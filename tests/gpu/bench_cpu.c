/* What tools/bench_step.c asks of GPUs, by the CPU's backend, so that it is seen to run where no
 * GPU is.  Knows nothing of what it does; its times mean nothing. */
#include "kernels/cpu/cpu.h"
#include "kernels/cuda/cuda.h"

int backend_cuda_devices(void)
{
    return 1;
}

struct backend *backend_cuda_create(int device, const struct backend_limits *limits,
                                    const char **reason)
{
    (void)device;
    *reason = "no memory";
    return backend_cpu_create(cpu_isa_best(), 1, limits);
}

void backend_cuda_recording(struct backend *b, _Bool on)
{
    (void)b;
    (void)on;
}
