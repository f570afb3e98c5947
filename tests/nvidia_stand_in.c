/* Stands in for NVIDIA's driver: as libnvidia-ml.so.1 (what Ray's reporter and the agent load) and, built with
 * -DNVIDIA_SMI, as the program nvidia-smi. Both read the file that NVML_STAND_IN names, one thing a line, MiB:
 *
 *   card UUID TOTAL NAME     a card; TOTAL -1: the driver supports no report of its memory (unified memory)
 *   part UUID TOTAL NAME     a MIG device of the card above, which is divided then
 *   use UUID PID MIB         a process has memory of a card or part, for as long as it lives
 *   lost UUID                the card is counted and cannot be opened, as after Xid 79
 *   ecc UUID COUNT           the card's memory has had uncorrected errors
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OK = 0, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, SMALL = 7, NO_DRIVER = 9, LOST = 15, MOST = 64 };
typedef unsigned long long bytes;
typedef struct { unsigned pid; bytes used; unsigned gpu_instance, compute_instance; } process;
typedef struct {
    char uuid[80], name[80];
    long long total;
    int parent, processes, lost; /* parent -1: a whole card */
    bytes uncorrected;
    process process[MOST];
} device;

static device devices[MOST];
static int count;
static const bytes MIB = 1 << 20;

static device *find(const char *uuid) {
    for (int i = 0; i < count; i++)
        if (!strcmp(devices[i].uuid, uuid)) return &devices[i];
    return NULL;
}

static int lives(unsigned pid) {
    char path[64], state = 'X';
    snprintf(path, sizeof path, "/proc/%u/stat", pid);
    FILE *stat = fopen(path, "r");
    if (!stat) return 0;
    if (fscanf(stat, "%*d (%*[^)]) %c", &state) != 1) state = 'X';
    fclose(stat);
    return state != 'Z' && state != 'X';
}

static int load(void) {
    const char *path = getenv("NVML_STAND_IN");
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[256], kind[8], uuid[80], name[80];
    if (!file) return NO_DRIVER;
    count = 0;
    memset(devices, 0, sizeof devices);
    while (fgets(line, sizeof line, file)) {
        long long total; unsigned pid; bytes mib; device *one;
        if (sscanf(line, "use %79s %u %llu", uuid, &pid, &mib) == 3) {
            if ((one = find(uuid)) && one->processes < MOST && lives(pid))
                one->process[one->processes++] = (process){pid, mib * MIB, 0, 0};
        } else if (sscanf(line, "lost %79s", uuid) == 1) {
            if ((one = find(uuid))) one->lost = 1;
        } else if (sscanf(line, "ecc %79s %llu", uuid, &mib) == 2) {
            if ((one = find(uuid))) one->uncorrected = mib;
        } else if (sscanf(line, "%7s %79s %lld %79[^\n]", kind, uuid, &total, name) == 4 && count < MOST) {
            int parent = -1;
            for (int i = 0; !strcmp(kind, "part") && i < count; i++)
                if (devices[i].parent < 0) parent = i;
            one = &devices[count++];
            strcpy(one->uuid, uuid), strcpy(one->name, name);
            one->total = total, one->parent = parent;
        }
    }
    fclose(file);
    return OK;
}

/* the place-th device of a parent; -1: the whole cards */
static device *child(int parent, unsigned place) {
    for (int i = 0; i < count; i++)
        if (devices[i].parent == parent && place-- == 0) return &devices[i];
    return NULL;
}

static unsigned children(int parent) {
    unsigned found = 0;
    while (child(parent, found)) found++;
    return found;
}

static bytes used(const device *one) {
    bytes sum = 0;
    for (int i = 0; i < one->processes; i++) sum += one->process[i].used;
    return sum;
}

int nvmlInitWithFlags(unsigned flags) { (void)flags; return load(); }
int nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(int code) {
    return code == NOT_SUPPORTED ? "Not Supported" : code == LOST ? "GPU is lost" : "Refused by the stand-in";
}
int nvmlDeviceGetCount_v2(unsigned *found) { *found = children(-1); return OK; }
int nvmlDeviceGetHandleByIndex_v2(unsigned place, device **one) {
    return !(*one = child(-1, place)) ? INVALID : (*one)->lost ? LOST : OK;
}
int nvmlDeviceGetTotalEccErrors(device *one, int kind, int counter, bytes *found) {
    *found = kind == 1 && counter == 0 ? one->uncorrected : 0;
    return OK;
}
int nvmlDeviceGetMigMode(device *one, unsigned *now, unsigned *next) {
    *now = *next = children(one - devices) > 0;
    return OK;
}
int nvmlDeviceGetMaxMigDeviceCount(device *one, unsigned *most) { *most = children(one - devices); return OK; }
int nvmlDeviceGetMigDeviceHandleByIndex(device *one, unsigned place, device **part) {
    return (*part = child(one - devices, place)) ? OK : NOT_FOUND;
}
int nvmlDeviceGetUUID(device *one, char *text, unsigned size) { snprintf(text, size, "%s", one->uuid); return OK; }
int nvmlDeviceGetName(device *one, char *text, unsigned size) { snprintf(text, size, "%s", one->name); return OK; }
int nvmlDeviceGetMemoryInfo(device *one, bytes *memory) { /* total, free, used */
    if (one->total < 0) return NOT_SUPPORTED;
    memory[0] = one->total * MIB, memory[2] = used(one), memory[1] = memory[0] - memory[2];
    return OK;
}
int nvmlDeviceGetMemoryInfo_v2(device *one, bytes *memory) { /* version, total, reserved, free, used */
    if (one->total < 0) return NOT_SUPPORTED;
    memory[1] = one->total * MIB, memory[2] = 0, memory[4] = used(one), memory[3] = memory[1] - memory[4];
    return OK;
}
static int list(device *one, unsigned *room, process *found) {
    if (*room < (unsigned)one->processes) { *room = one->processes; return SMALL; }
    *room = one->processes;
    if (found) memcpy(found, one->process, one->processes * sizeof *found);
    return OK;
}
int nvmlDeviceGetComputeRunningProcesses_v2(device *one, unsigned *room, process *found) { return list(one, room, found); }
int nvmlDeviceGetComputeRunningProcesses_v3(device *one, unsigned *room, process *found) { return list(one, room, found); }
int nvmlDeviceGetGraphicsRunningProcesses_v2(device *one, unsigned *room, process *found) {
    (void)one, (void)found, *room = 0;
    return OK;
}
int nvmlDeviceGetGraphicsRunningProcesses_v3(device *one, unsigned *room, process *found) {
    return nvmlDeviceGetGraphicsRunningProcesses_v2(one, room, found);
}

#ifdef NVIDIA_SMI
int main(void) { /* --query-gpu=index,uuid,memory.total,memory.used,memory.free --format=csv,noheader,nounits */
    int code = load();
    if (code) return code;
    for (unsigned place = 0; place < children(-1); place++) {
        const device *one = child(-1, place);
        if (one->lost) {
            code = LOST;
            fprintf(stderr, "Unable to determine the device handle for GPU%u: GPU is lost\n", place);
        } else if (one->total < 0) printf("%u, %s, [N/A], [N/A], [N/A]\n", place, one->uuid);
        else printf("%u, %s, %lld, %llu, %llu\n", place, one->uuid, one->total, used(one) / MIB,
                    one->total - used(one) / MIB);
    }
    return code;
}
#endif
