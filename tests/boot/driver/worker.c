/* A worker without a GPU: of glibc, like the real one; finds the driver's library and its nodes the
 * way that one does, says so, and lets the engine's own steps compute. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW);
    int (*init)(unsigned) = cuda == NULL ? NULL : (int (*)(unsigned))dlsym(cuda, "cuInit");
    int nodes = open("/dev/nvidia-uvm", O_RDWR | O_CLOEXEC) >= 0;
    nodes += open("/dev/nvidiactl", O_RDWR | O_CLOEXEC) >= 0;
    fprintf(stderr, "made-up worker: libcuda answers %d, %d nodes, %d words\n",
            init == NULL ? -1 : init(0), nodes, argc);
    argv[0] = "/bin/engine";
    execv(argv[0], argv);
    perror(argv[0]);
    return 1;
}
