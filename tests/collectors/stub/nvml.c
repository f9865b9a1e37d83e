/* A stand-in for libnvidia-ml.so.1 that drives the real nvidia-ml-py. Environment:
   STUB_COUNT GPUs (default 2), STUB_INIT error code of nvmlInit, STUB_LOST index of a lost GPU (STUB_LOST_FILE: of the
   one named in that file, as soon as it is there), STUB_DENIED index of a GPU that this process may not use, STUB_MIG
   index of a GPU split in two instances, STUB_BROKEN_FILE: while that file is there the driver answers nothing, STUB_PID a process that computes on GPU 0, STUB_GPM=0 before Hopper.
   Functions that are not here are "missing"; with -DOLD_DRIVER so are those of newer drivers. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { int index; int instance; } device;
static device devices[8][64], instances[64][2];

static int number(const char *name, int missing) {
    const char *text = getenv(name);
    return text && *text ? atoi(text) : missing;
}
static int lost(device *d) {
    const char *path = getenv("STUB_LOST_FILE");
    FILE *file = path ? fopen(path, "r") : 0;
    int index = -1;
    if (file) {
        if (fscanf(file, "%d", &index) != 1) index = -1;
        fclose(file);
    }
    return d->index == index || d->index == number("STUB_LOST", -1);
}
static int split(device *d) { return d->index == number("STUB_MIG", -1); }

static int opened = 0; /* handles of an earlier opening are refused */
static int broken(void) {
    const char *path = getenv("STUB_BROKEN_FILE");
    FILE *file = path ? fopen(path, "r") : 0;
    if (file) fclose(file);
    return file != 0;
}
int nvmlInit_v2(void) { opened++; return broken() ? 999 : number("STUB_INIT", 0); }
int nvmlInitWithFlags(unsigned flags) { return nvmlInit_v2(); }
int nvmlShutdown(void) { return 0; }
int nvmlSystemGetDriverVersion(char *text, unsigned length) { snprintf(text, length, "580.65.06"); return 0; }
const char *nvmlErrorString(int code) { return code == 999 ? "Unknown Error" : "stub error"; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = number("STUB_COUNT", 2); return 0; }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, device **handle) {
    if ((int)index == number("STUB_DENIED", -1)) return 4; /* no permission */
    device *made = &devices[opened % 8][index];
    made->index = index;
    made->instance = -1;
    *handle = made;
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
    if (broken()) return 999;
    if (d->instance < 0 && d != &devices[opened % 8][d->index]) return 2;
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
static int reasons(device *d, unsigned long long *mask) {
    if (lost(d)) return 15;
    *mask = 0x204;
    return 0;
}
#ifdef OLD_DRIVER
int nvmlDeviceGetCurrentClocksThrottleReasons(device *d, unsigned long long *mask) { return reasons(d, mask); }
#else
int nvmlDeviceGetCurrentClocksEventReasons(device *d, unsigned long long *mask) { return reasons(d, mask); }

int nvmlDeviceGetTotalEnergyConsumption(device *d, unsigned long long *millijoules) {
    static unsigned long long spent = 1000000;
    if (lost(d)) return 15;
    if (d->instance >= 0) return 3;
    *millijoules = spent += 350500;
    return 0;
}
int nvmlDeviceGetPcieThroughput(device *d, int counter, unsigned *kilobytes) {
    if (lost(d)) return 15;
    *kilobytes = counter ? 2500000 : 1500000;
    return 0;
}
typedef struct { unsigned id, scope; long long when, took; int type, code; unsigned long long value; } field;
int nvmlDeviceGetFieldValues(device *d, int count, field *fields) {
    static unsigned long long sent = 0;
    if (lost(d)) return 15;
    for (int i = 0; i < count; i++) {
        if (fields[i].scope != 0xFFFFFFFF) return 2; /* all links were asked for */
        fields[i].code = d->index ? 3 : 0;           /* only GPU 0 has links */
        fields[i].value = sent += 1 << 20;
    }
    return 0;
}

/* GPM. Id 2 (SM) is 40 + the GPU's index, and 50 more on instances; 3 says how many samples lie between the two; 10
   (DRAM) is 80; 8 is not supported, 6 is not a number; others are their own id. */
typedef struct { device *of; int instance, turn; } sample;
typedef struct { unsigned id; int code; double value; char *about[3]; } metric;
typedef struct { unsigned version, count; sample *first, *second; metric metrics[333]; } request;
static int turns = 0, alive = 0;

int stubSamplesAlive(void) { return alive; }
int nvmlGpmQueryDeviceSupport(device *d, unsigned *support) {
    if (support[0] != 1) return 25; /* version */
    if (lost(d)) return 15;
    if (d->instance >= 0) return 3; /* asked of the GPU, not of an instance */
    support[1] = number("STUB_GPM", 1);
    return 0;
}
int nvmlGpmSampleAlloc(sample **made) { alive++; *made = calloc(1, sizeof(sample)); return 0; }
int nvmlGpmSampleFree(sample *s) { alive--; free(s); return 0; }
int nvmlGpmSampleGet(device *d, sample *s) {
    if (lost(d)) return 15;
    if (split(d)) return 3;
    s->of = d; s->instance = -1; s->turn = ++turns;
    return 0;
}
int nvmlGpmMigSampleGet(device *d, unsigned instance, sample *s) {
    if (!split(d) || d->instance >= 0) return 2;
    s->of = d; s->instance = instance; s->turn = ++turns;
    return 0;
}
int nvmlDeviceGetGpuInstanceId(device *d, unsigned *id) {
    if (d->instance < 0) return 3;
    *id = d->instance + 1;
    return 0;
}
int nvmlGpmMetricsGet(request *r) {
    if (r->version != 1) return 25;
    if (r->first->of != r->second->of || r->first->instance != r->second->instance) return 2;
    if (r->first->turn >= r->second->turn) return 2; /* the older one comes first */
    for (unsigned i = 0; i < r->count; i++) {
        metric *m = &r->metrics[i];
        m->code = m->id == 8 ? 3 : 0;
        m->value = m->id;
        if (m->id == 2) m->value = 40 + r->first->of->index + (r->first->instance >= 0 ? 50 : 0);
        if (m->id == 3) m->value = r->second->turn - r->first->turn;
        if (m->id == 10) m->value = 80;
        if (m->id == 6) m->value = NAN;
    }
    return 0;
}
#endif

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
