/* A stand-in for libnvidia-ml.so.1 that drives the real nvidia-ml-py. Environment:
   STUB_COUNT GPUs (default 2), STUB_INIT error code of nvmlInit, STUB_LOST index of a lost GPU, STUB_MIG index of a
   GPU split in two instances, STUB_PID a process that computes on GPU 0. Functions that are not here are "missing". */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { int index; int instance; } device;
static device devices[64], instances[64][2];

static int number(const char *name, int missing) {
    const char *text = getenv(name);
    return text && *text ? atoi(text) : missing;
}
static int lost(device *d) { return d->index == number("STUB_LOST", -1); }
static int split(device *d) { return d->index == number("STUB_MIG", -1); }

int nvmlInitWithFlags(unsigned flags) { return number("STUB_INIT", 0); }
int nvmlInit_v2(void) { return number("STUB_INIT", 0); }
int nvmlShutdown(void) { return 0; }
int nvmlSystemGetDriverVersion(char *text, unsigned length) { snprintf(text, length, "580.65.06"); return 0; }
const char *nvmlErrorString(int code) { return code == 999 ? "Unknown Error" : "stub error"; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = number("STUB_COUNT", 2); return 0; }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, device **handle) {
    devices[index].index = index;
    devices[index].instance = -1;
    *handle = &devices[index];
    return 0;
}
int nvmlDeviceGetName(device *d, char *text, unsigned length) {
    if (d->instance >= 0) snprintf(text, length, "NVIDIA H100 MIG 3g.40gb");
    else snprintf(text, length, "NVIDIA H100");
    return 0;
}
int nvmlDeviceGetUUID(device *d, char *text, unsigned length) {
    if (d->instance >= 0) snprintf(text, length, "MIG-%04d-%d", d->index, d->instance);
    else snprintf(text, length, "GPU-%04d-aaaa", d->index);
    return 0;
}
int nvmlDeviceGetMigMode(device *d, unsigned *now, unsigned *later) {
    *now = *later = split(d);
    return 0;
}
int nvmlDeviceGetMaxMigDeviceCount(device *d, unsigned *count) { *count = 7; return 0; }
int nvmlDeviceGetMigDeviceHandleByIndex(device *d, unsigned index, device **handle) {
    if (index > 1) return 6; /* not found */
    instances[d->index][index].index = d->index;
    instances[d->index][index].instance = index;
    *handle = &instances[d->index][index];
    return 0;
}
int nvmlDeviceGetUtilizationRates(device *d, unsigned *rates) {
    if (lost(d)) return 15;
    if (d->instance >= 0) return 3; /* not supported */
    rates[0] = 10 + d->index;
    rates[1] = 5;
    return 0;
}
int nvmlDeviceGetMemoryInfo(device *d, unsigned long long *memory) {
    if (lost(d)) return 15;
    memory[0] = 80000000000ULL;
    memory[1] = 70000000000ULL;
    memory[2] = 10000000000ULL;
    return 0;
}
int nvmlDeviceGetPowerUsage(device *d, unsigned *milliwatts) {
    if (lost(d)) return 15;
    *milliwatts = 350500;
    return 0;
}
int nvmlDeviceGetClockInfo(device *d, int kind, unsigned *mhz) {
    if (lost(d)) return 15;
    *mhz = kind == 1 ? 1980 : 2619;
    return 0;
}
int nvmlDeviceGetTemperature(device *d, int sensor, unsigned *celsius) {
    if (lost(d)) return 15;
    *celsius = 61;
    return 0;
}
int nvmlDeviceGetCurrentClocksEventReasons(device *d, unsigned long long *mask) {
    if (lost(d)) return 15;
    *mask = 0x204;
    return 0;
}

typedef struct { unsigned pid; unsigned long long used; unsigned gpu, compute; } process;
int nvmlDeviceGetComputeRunningProcesses_v3(device *d, unsigned *count, process *list) {
    int pid = number("STUB_PID", 0);
    if (lost(d)) return 15;
    if (d->index || !pid) { *count = 0; return 0; }
    if (!list || *count < 2) { *count = 2; return 7; }
    list[0].pid = pid; list[0].used = 1500000000ULL;
    list[1].pid = 4100000; list[1].used = ~0ULL;
    *count = 2;
    return 0;
}
