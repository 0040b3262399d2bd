/*
 * NVIDIA's GPUs as the kernel finds them on the PCI bus, whether or not a driver drives them: name,
 * link, errors of the link.  Reads /sys and nothing of the driver, whose files may hold up who
 * reads them when a GPU hangs.  Every file may be missing, or hold anything.
 */
#ifndef V4BOX_INIT_PCI_H
#define V4BOX_INIT_PCI_H

#include "config/box.h"
#include "init/gpu.h"
#include "init/text.h"
#include "init/xid.h"

#include <stdbool.h>

#define PCI_DEVICES "/sys/bus/pci/devices"
#define PCI_DRIVER  "/sys/module/nvidia/version"

struct pci_gpu {
    char bus[PCI_BUS_BYTES]; /* "0000:41:00.0" */
    char name[PCI_NAME_BYTES];
    char driver[PCI_WORD_BYTES];      /* "" none drives it */
    char speed[PCI_WORD_BYTES];       /* "32.0 GT/s PCIe"; "": not told */
    char speed_max[PCI_WORD_BYTES];   /* of the GPU, not of its slot */
    int width, width_max;             /* lanes; -1: not told */
    long long corrected, uncorrected; /* of the link, since the start; -1: not told */
};

/** Finds the GPUs below a folder, by their number on the bus; returns how many, and in *all how
 * many there are. */
int pci_gpus(const char *devices, struct pci_gpu gpus[BOX_GPUS_MAX], int *all);

/** Whether the GPUs below a folder suffice for a layout (common/layout.h), which is one.
 *  @return NULL: they do; else `text`: what is wrong, and what to do */
const char *pci_layout_wrong(const char *devices, const char *layout, char *text, size_t cap);

/** What init says of them: `devices` and `driver` are PCI_DEVICES and PCI_DRIVER.  Both outputs are
 * appended to, the second one as a JSON object. */
void pci_tell(const char *devices, const char *driver, const struct gpu *payload,
              const struct xids *xids, struct text *text, struct text *data);

#endif
