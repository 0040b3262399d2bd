/* How GPUs fare, by NVIDIA's management library (its types and numbers: nvml.h of the driver). */
#include "kernels/worker/nvml.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define TEMPERATURE_GPU 0
#define CLOCK_SM        1
#define ECC_CORRECTED   0
#define ECC_UNCORRECTED 1
#define ECC_VOLATILE    0 /* since the driver was loaded */

/* A GPU is a pointer to nobody knows what; a result is 0 when it is good. */
typedef void *device;
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

static void *library; /* owns */
static struct {
    int (*init)(void);
    int (*shutdown)(void);
    int (*driver_version)(char *version, unsigned length);
    int (*count)(unsigned *count);
    int (*handle)(unsigned index, device *out);
    int (*name)(device, char *name, unsigned length);
    int (*pci)(device, struct pci_info *out);
    int (*temperature)(device, int sensor, unsigned *celsius);
    int (*power)(device, unsigned *milliwatts);
    int (*power_limit)(device, unsigned *milliwatts);
    int (*memory)(device, struct memory_info *out);
    int (*clock)(device, int type, unsigned *mhz);
    int (*clock_max)(device, int type, unsigned *mhz);
    int (*clock_limits)(device, unsigned long long *reasons);
    int (*busy)(device, struct utilization *out);
    int (*ecc)(device, int type, int counter, unsigned long long *count);
} nvml;

static const struct {
    const char *name;
    void *to;
} CALLS[] = {
    {"nvmlInit_v2", &nvml.init},
    {"nvmlShutdown", &nvml.shutdown},
    {"nvmlSystemGetDriverVersion", &nvml.driver_version},
    {"nvmlDeviceGetCount_v2", &nvml.count},
    {"nvmlDeviceGetHandleByIndex_v2", &nvml.handle},
    {"nvmlDeviceGetName", &nvml.name},
    {"nvmlDeviceGetPciInfo_v3", &nvml.pci},
    {"nvmlDeviceGetTemperature", &nvml.temperature},
    {"nvmlDeviceGetPowerUsage", &nvml.power},
    {"nvmlDeviceGetEnforcedPowerLimit", &nvml.power_limit},
    {"nvmlDeviceGetMemoryInfo", &nvml.memory},
    {"nvmlDeviceGetClockInfo", &nvml.clock},
    {"nvmlDeviceGetMaxClockInfo", &nvml.clock_max},
    {"nvmlDeviceGetCurrentClocksThrottleReasons", &nvml.clock_limits},
    {"nvmlDeviceGetUtilizationRates", &nvml.busy},
    {"nvmlDeviceGetTotalEccErrors", &nvml.ecc},
};

const char *nvml_open(const char *name)
{
    static char why[GAUGE_NOTE_BYTES];
    library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        snprintf(why, sizeof why, "%s", dlerror());
        return why;
    }
    for (size_t i = 0; i < sizeof CALLS / sizeof *CALLS; i++) {
        void *call = dlsym(library, CALLS[i].name);
        if (call == NULL)
            snprintf(why, sizeof why, "%s: %s is missing", name, CALLS[i].name);
        memcpy(CALLS[i].to, &call, sizeof call);
        if (call == NULL)
            goto out_close;
    }
    int code = nvml.init();
    if (code == 0)
        return NULL;
    snprintf(why, sizeof why, "%s: nvmlInit refuses, %d", name, code);
out_close:
    dlclose(library);
    library = NULL;
    return why;
}

void nvml_close(void)
{
    if (library == NULL)
        return;
    nvml.shutdown();
    dlclose(library);
    library = NULL;
}

/* A number, when the call was good. */
static int64_t told(int code, unsigned long long value)
{
    return code == 0 && value <= INT64_MAX ? (int64_t)value : GAUGE_UNKNOWN;
}

static void read_words(device gpu, struct gpu_gauges *out)
{
    struct pci_info pci = {.domain = 0};
    char name[GAUGE_NAME_BYTES] = "";
    if (nvml.name(gpu, name, sizeof name) != 0)
        name[0] = '\0';
    snprintf(out->name, sizeof out->name, "%.*s", (int)sizeof name - 1, name);
    if (nvml.pci(gpu, &pci) == 0) /* as the kernel writes it */
        snprintf(out->bus, sizeof out->bus, "%04x:%02x:%02x.0", pci.domain, pci.bus & 0xff,
                 pci.device & 0xff);
}

static void read_numbers(device gpu, int64_t value[GAUGES])
{
    unsigned number = 0;
    unsigned long long wide = 0;
    struct memory_info memory = {.total = 0};
    struct utilization busy = {.gpu = 0};
    int code = nvml.temperature(gpu, TEMPERATURE_GPU, &number);
    value[GAUGE_TEMPERATURE] = told(code, number);
    code = nvml.power(gpu, &number);
    value[GAUGE_POWER] = told(code, number);
    code = nvml.power_limit(gpu, &number);
    value[GAUGE_POWER_MAX] = told(code, number);
    code = nvml.memory(gpu, &memory);
    value[GAUGE_MEMORY_USED] = told(code, memory.used);
    value[GAUGE_MEMORY] = told(code, memory.total);
    code = nvml.clock(gpu, CLOCK_SM, &number);
    value[GAUGE_CLOCK] = told(code, number);
    code = nvml.clock_max(gpu, CLOCK_SM, &number);
    value[GAUGE_CLOCK_MAX] = told(code, number);
    code = nvml.clock_limits(gpu, &wide);
    value[GAUGE_CLOCK_LIMITS] = told(code, wide);
    code = nvml.busy(gpu, &busy);
    value[GAUGE_BUSY] = told(code, busy.gpu);
    code = nvml.ecc(gpu, ECC_CORRECTED, ECC_VOLATILE, &wide);
    value[GAUGE_ECC_CORRECTED] = told(code, wide);
    code = nvml.ecc(gpu, ECC_UNCORRECTED, ECC_VOLATILE, &wide);
    value[GAUGE_ECC_LOST] = told(code, wide);
    value[GAUGE_RANK] = value[GAUGE_GROUP] = GAUGE_UNKNOWN;
}

void nvml_read(struct gauges *out)
{
    unsigned count = 0;
    char version[GAUGE_NAME_BYTES] = "";
    int code = nvml.count(&count);
    out->n = 0;
    out->note[0] = '\0';
    if (nvml.driver_version(version, sizeof version) == 0)
        snprintf(out->driver, sizeof out->driver, "%.*s", (int)sizeof version - 1, version);
    if (code != 0)
        snprintf(out->note, sizeof out->note, "NVML counts no GPUs, %d", code);
    else if (count > RANKS_MAX)
        snprintf(out->note, sizeof out->note, "%u GPUs: the first %d are shown", count, RANKS_MAX);
    for (unsigned i = 0; code == 0 && i < count && i < RANKS_MAX; i++) {
        struct gpu_gauges *gpu = &out->gpu[out->n];
        device handle = NULL;
        int lost = nvml.handle(i, &handle);
        if (lost != 0) {
            snprintf(out->note, sizeof out->note, "GPU %u does not answer NVML, %d", i, lost);
            continue;
        }
        memset(gpu, 0, sizeof *gpu);
        read_words(handle, gpu);
        read_numbers(handle, gpu->value);
        out->n++;
    }
}
