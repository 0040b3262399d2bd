/* A library in place of NVIDIA's for management: two GPUs, the second of which tells next to
 * nothing; a third one does not answer. */
#include <stdio.h>
#include <string.h>

struct pci_info {
    char bus_id_legacy[16];
    unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
    char bus_id[32];
};
struct memory_info {
    unsigned long long total, free, used;
};
struct utilization {
    unsigned gpu, memory;
};

static int first, second;

#define REFUSED 999

int nvmlInit_v2(void);
int nvmlShutdown(void);
int nvmlSystemGetDriverVersion(char *version, unsigned length);
int nvmlDeviceGetCount_v2(unsigned *count);
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **out);
int nvmlDeviceGetName(void *gpu, char *name, unsigned length);
int nvmlDeviceGetPciInfo_v3(void *gpu, struct pci_info *out);
int nvmlDeviceGetTemperature(void *gpu, int sensor, unsigned *out);
int nvmlDeviceGetPowerUsage(void *gpu, unsigned *out);
int nvmlDeviceGetEnforcedPowerLimit(void *gpu, unsigned *out);
int nvmlDeviceGetMemoryInfo(void *gpu, struct memory_info *out);
int nvmlDeviceGetClockInfo(void *gpu, int type, unsigned *out);
int nvmlDeviceGetMaxClockInfo(void *gpu, int type, unsigned *out);
int nvmlDeviceGetCurrentClocksThrottleReasons(void *gpu, unsigned long long *out);
int nvmlDeviceGetUtilizationRates(void *gpu, struct utilization *out);
int nvmlDeviceGetTotalEccErrors(void *gpu, int type, int counter, unsigned long long *out);

int nvmlInit_v2(void)
{
    return 0;
}
int nvmlShutdown(void)
{
    return 0;
}
int nvmlSystemGetDriverVersion(char *version, unsigned length)
{
    return snprintf(version, length, "580.65.06") < 0;
}
int nvmlDeviceGetCount_v2(unsigned *count)
{
    *count = 3;
    return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **out)
{
    *out = index == 0 ? &first : &second;
    return index > 1 ? REFUSED : 0;
}
int nvmlDeviceGetName(void *gpu, char *name, unsigned length)
{
    memset(name, 'x', length); /* no end */
    return gpu == &first ? snprintf(name, length, "Made-up GPU") < 0 : 0;
}
int nvmlDeviceGetPciInfo_v3(void *gpu, struct pci_info *out)
{
    memset(out, 'x', sizeof *out);
    out->domain = 0;
    out->bus = 0x41;
    out->device = 0;
    return gpu == &first ? 0 : REFUSED;
}
static int number(void *gpu, unsigned value, unsigned *out)
{
    *out = gpu == &first ? value : ~0u;
    return gpu == &first ? 0 : REFUSED;
}
int nvmlDeviceGetTemperature(void *gpu, int sensor, unsigned *out)
{
    *out = sensor == 0 && gpu == &first ? 61 : ~0u; /* the second one's is nonsense, not refused */
    return 0;
}
int nvmlDeviceGetPowerUsage(void *gpu, unsigned *out)
{
    return number(gpu, 312500, out);
}
int nvmlDeviceGetEnforcedPowerLimit(void *gpu, unsigned *out)
{
    return number(gpu, 600000, out);
}
int nvmlDeviceGetMemoryInfo(void *gpu, struct memory_info *out)
{
    *out = (struct memory_info){100, 60, 40};
    return gpu == &first ? 0 : REFUSED;
}
int nvmlDeviceGetClockInfo(void *gpu, int type, unsigned *out)
{
    return number(gpu, type == 1 ? 2310 : 0, out);
}
int nvmlDeviceGetMaxClockInfo(void *gpu, int type, unsigned *out)
{
    return number(gpu, type == 1 ? 2430 : 0, out);
}
int nvmlDeviceGetCurrentClocksThrottleReasons(void *gpu, unsigned long long *out)
{
    *out = 4;
    return gpu == &first ? 0 : REFUSED;
}
int nvmlDeviceGetUtilizationRates(void *gpu, struct utilization *out)
{
    *out = (struct utilization){97, 3};
    return gpu == &first ? 0 : REFUSED;
}
int nvmlDeviceGetTotalEccErrors(void *gpu, int type, int counter, unsigned long long *out)
{
    *out = counter != 0 ? 77 : type == 0 ? 5 : 2;
    return gpu == &first ? 0 : REFUSED;
}
