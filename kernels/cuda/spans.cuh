/*
 * Stages that read a sequence's own state: calls of one operation for several sequences wait while
 * each goes on in the rows behind those before it, and run as one launch.  A block does what it
 * does for one sequence alone, so the bits are the same.
 */
#ifndef V4BOX_KERNELS_CUDA_SPANS_CUH
#define V4BOX_KERNELS_CUDA_SPANS_CUH

#include "kernels/cuda/ops.cuh"

/* Sequences of a launch: with these, parameters of a kernel stay below 4 KB. */
#define SPANS_MAX 64
/* What an operation reads or writes of a sequence's state. */
#define SPAN_MEMORIES 3

struct span_state {
    const int32_t *at; /* device [1]: position of its first row */
    float *memory[SPAN_MEMORIES];
};

/* Sequences of n rows each, one behind another. */
struct spans {
    int32_t n, count;
    struct span_state list[SPANS_MAX];
};

static __host__ __device__ inline int32_t spans_rows(const spans &s)
{
    return s.n * s.count;
}

/* Where row t of all belongs. */
struct span_row {
    struct span_state state;
    int32_t row; /* of its sequence's */
};

static __device__ inline span_row span_row_of(const spans &s, int64_t t)
{
    int32_t k = (int32_t)t / s.n;
    return {s.list[k], (int32_t)t - k * s.n};
}

static __device__ inline int64_t position_of(const span_row &r)
{
    return (int64_t)*r.state.at + r.row;
}

/* A member of an operation's parameters. */
struct member {
    uint16_t at, bytes;
};
#define MEMBER(type, name)                                                                         \
    {                                                                                              \
        offsetof(struct type, name), sizeof(((struct type *)NULL)->name)                           \
    }

/* How calls of an operation become one. */
#define SAME_MAX 16
struct span_operation {
    void (*run)(struct cuda_backend *b, const void *params, const struct spans *spans);
    size_t bytes;                 /* of its parameters */
    struct member same[SAME_MAX]; /* of which all must be equal; bytes 0: no more of them */
    uint16_t reach;               /* an int32_t of which the largest counts; 0: there is none */
};

/* A call: what is its sequence's, and rows that must follow those of the sequence before. */
#define SPAN_ROWS_MAX 5
struct span_call {
    const struct span_operation *operation;
    const void *params;
    int32_t n;
    struct span_state state;
    struct memory rows[SPAN_ROWS_MAX];
};

/* Takes a call; it runs with others of its kind, or before anything else. */
void spans_call(struct cuda_backend *b, const struct span_call *call);

/* Memory of all sequences, and what lies between them. */
struct memory spans_cover(const struct spans *s, int memory, size_t bytes);

struct span_calls *spans_create(void);
void spans_destroy(struct span_calls *calls);

#endif
