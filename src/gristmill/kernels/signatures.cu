// Hashes and sketches as in hash_kernels.py and sketch_kernels.py, to the bit. Compiled at run time, once with GROUP 32
// (a warp for each text) and once with GROUP 128 (a block for each). Numbers that have a name come from constants.py.
//
// `data` begins at a multiple of eight bytes and has sixteen bytes more than texts use.

typedef unsigned long long u64;
typedef long long i64;
typedef unsigned int u32;
typedef unsigned char u8;

#define ALL_LANES 0xFFFFFFFFu
#define EMPTY 0xFFFFFFFFFFFFFFFFull
#define HASH ((1ull << ROUND_BITS) - 1)

__device__ __forceinline__ u64 mixed(u64 value) {
    value = (value ^ (value >> 30)) * MIX_1;
    value = (value ^ (value >> 27)) * MIX_2;
    return value ^ (value >> 31);
}

__device__ __forceinline__ u64 remixed(u64 value, u64 salt) {
    value = (value ^ salt) * MIX_1;
    return (value ^ (value >> 32)) * MIX_2;
}

__device__ __forceinline__ u64 folded_product(u64 left, u64 right) {
    return __umul64hi(left, right) ^ (left * right);
}

// Eight bytes, the first in the lowest; those from `end` on are 0.
__device__ __forceinline__ u64 eight_before(const u8* data, i64 at, i64 end) {
    if (at >= end) return 0;
    const u64* words = (const u64*)data + (at >> 3);
    int shift = (int)(at & 7) * 8;
    u64 value = words[0];
    if (shift) value = (value >> shift) | (words[1] << (64 - shift));
    return end - at < 8 ? value & ((1ull << (8 * (end - at))) - 1) : value;
}

// A warp for each text, a thread for each chunk of a block.
extern "C" __global__ void hash_texts(
    const u8* data, const i64* starts, const i64* ends, u32 texts, const u64* keys, u64* out) {
    u32 d = blockIdx.x * blockDim.y + threadIdx.y;
    if (d >= texts) return;
    int lane = threadIdx.x;
    u64 key_0 = keys[4 * lane], key_1 = keys[4 * lane + 1], key_2 = keys[4 * lane + 2], key_3 = keys[4 * lane + 3];
    i64 start = starts[d], end = ends[d];
    u64 total = 0, other_total = 0, number = 0;
    for (i64 block = start; block < end; block += BLOCK_CHUNKS * CHUNK_BYTES) {
        u64 sum = 0, other = 0;
        i64 at = block + CHUNK_BYTES * lane;
        number += 1;
        if (at < end) {
            u64 left = eight_before(data, at, end), right = eight_before(data, at + 8, end);
            sum = folded_product(left ^ key_0, right ^ key_1);
            other = folded_product(left ^ key_2, right ^ key_3);
        }
        for (int far = 16; far; far >>= 1) {
            sum += __shfl_xor_sync(ALL_LANES, sum, far);
            other += __shfl_xor_sync(ALL_LANES, other, far);
        }
        total += mixed(sum + number * STEP);
        other_total += mixed(other ^ (number * FOLD));
    }
    if (lane == 0) {
        u64 first = mixed(total ^ ((u64)(end - start) * LENGTH) ^ keys[4 * BLOCK_CHUNKS]);
        out[2 * (u64)d] = first;
        out[2 * (u64)d + 1] = mixed(other_total + (first ^ keys[4 * BLOCK_CHUNKS + 1]));
    }
}

// ---- threads that work on one text together ----

__device__ __forceinline__ void group_sync() {
#if GROUP == 32
    __syncwarp();
#else
    __syncthreads();
#endif
}

__device__ __forceinline__ bool group_any(bool mine) {
#if GROUP == 32
    __syncwarp();
    return __any_sync(ALL_LANES, mine);
#else
    return __syncthreads_or(mine);
#endif
}

// The sum of what threads before this one have, and of all.
__device__ __forceinline__ u32 group_before(u32 mine, u32* sum) {
    u32 upto = mine;
    int lane = threadIdx.x & 31;
    for (int far = 1; far < 32; far <<= 1) {
        u32 other = __shfl_up_sync(ALL_LANES, upto, far);
        if (lane >= far) upto += other;
    }
#if GROUP == 32
    *sum = __shfl_sync(ALL_LANES, upto, 31);
    return upto - mine;
#else
    __shared__ u32 of_warp[GROUP / 32];
    int warp = threadIdx.x >> 5;
    __syncthreads();
    if (lane == 31) of_warp[warp] = upto;
    __syncthreads();
    u32 before = 0, all = 0;
    for (int w = 0; w < GROUP / 32; w++) {
        if (w < warp) before += of_warp[w];
        all += of_warp[w];
    }
    *sum = all;
    return before + upto - mine;
#endif
}

struct Sketch {
    int width;       // of a shingle, in code points
    u64 power;       // the base to the width
    u64 seed;
    int places;
    int tile;        // code points that fit
    int stored;      // shingles that fit
    u64* minima;
    u64* shingles;
    u32* codes;
};

__device__ __forceinline__ void put(const Sketch& s, u64 shingle, u64 round, u64 salt) {
    u64 value = round ? remixed(shingle, salt) : shingle;
    u64 place = round < (u64)s.places ? ((value >> 32) * (u64)s.places) >> 32 : round - (u64)s.places;
    value = (round << ROUND_BITS) | (value & HASH);
    if (value < *(volatile u64*)(s.minima + place)) atomicMin(s.minima + place, value);
}

__device__ __forceinline__ u32 byte_of(u64 left, u64 right, int k) {
    return (u32)((k < 8 ? left >> (8 * k) : right >> (8 * (k - 8))) & 0xFF);
}

// Each thread takes eight bytes and appends the characters that begin there.
__device__ __forceinline__ u32 decode(const Sketch& s, const u8* data, i64 at, i64 end, u32 have) {
    u64 left = eight_before(data, at, end), right = eight_before(data, at + 8, end);
    int bytes = at >= end ? 0 : (int)(end - at < 8 ? end - at : 8);
    u32 mine = 0, sum;
    for (int k = 0; k < bytes; k++) mine += (byte_of(left, right, k) & 0xC0) != 0x80;
    u32 to = have + group_before(mine, &sum);
    for (int k = 0; k < bytes; k++) {
        u32 code = byte_of(left, right, k);
        if ((code & 0xC0) == 0x80) continue;
        if (code >= 0x80) {
            u32 lead = code;
            code = byte_of(left, right, k + 1) & 0x3F;
            if (lead < 0xE0) {
                code |= (lead & 0x1F) << 6;
            } else {
                code = (code << 6) | (byte_of(left, right, k + 2) & 0x3F);
                if (lead < 0xF0) code |= (lead & 0x0F) << 12;
                else code = ((lead & 0x07) << 18) | (code << 6) | (byte_of(left, right, k + 3) & 0x3F);
            }
        }
        s.codes[to++] = code;
    }
    return have + sum;
}

// One round with all shingles of a text. Returns how many there are if all code points fit at once, else -1.
__device__ __forceinline__ int one_round(const Sketch& s, const u8* data, i64 start, i64 end, u64 round, u64 salt) {
    i64 i = start;
    u32 have = 0;
    bool first = true;
    while (true) {
        while (i < end && have + 8 * GROUP <= (u32)s.tile) {
            have = decode(s, data, i + 8 * (i64)threadIdx.x, end, have);
            i += 8 * GROUP;
        }
        group_sync();
        bool whole = first && i >= end;
        int count = (int)have - s.width + 1;
        if (count <= 0 && whole) {  // a text that is shorter than a shingle is one, of its own length
            if (threadIdx.x == 0) {
                u64 h = 0;
                for (u32 k = 0; k < have; k++) h = h * STEP + s.codes[k];
                h = mixed((h + (u64)(have + 1) * LENGTH) ^ s.seed);
                s.shingles[0] = h;
                put(s, h, round, salt);
            }
            group_sync();
            return 1;
        }
        int run = ((count > 0 ? count : 0) + GROUP - 1) / GROUP | 1;  // odd: threads read from different banks
        for (int begin = (int)threadIdx.x * run; begin < count; begin += GROUP * run) {
            int stop = begin + run < count ? begin + run : count;
            u64 h = 0;
            for (int k = 0; k < s.width; k++) h = h * STEP + s.codes[begin + k];
            for (int p = begin; p < stop; p++) {
                u64 shingle = mixed(h ^ s.seed);
                if (whole && p < s.stored) s.shingles[p] = shingle;
                put(s, shingle, round, salt);
                if (p + 1 < stop) h = h * STEP + (s.codes[p + s.width] - s.power * s.codes[p]);
            }
        }
        group_sync();
        if (i >= end) return whole ? count : -1;
        // the caller sees to it that a tile has twice the width, so that this overwrites nothing that it reads
        for (int k = (int)threadIdx.x; k < s.width - 1; k += GROUP) s.codes[k] = s.codes[count + k];
        group_sync();
        have = (u32)(s.width - 1);
        first = false;
    }
}

extern "C" __global__ void sketch_texts(
    const u8* data, const i64* starts, const i64* ends, const u32* order, u32 listed, u32 texts,
    int width, u64 power, u64 seed, const u64* salts, int places, int rows, int tile, int stored, int most_rounds,
    u64* bands, u8* small, u8* unfinished) {
    extern __shared__ u64 shared_memory[];
    u32 group = blockIdx.x * blockDim.y + threadIdx.y;
    if (group >= listed) return;
    u32 d = order[group];
    Sketch s;
    s.width = width;
    s.power = power;
    s.seed = seed;
    s.places = places;
    s.tile = tile;
    s.stored = stored;
    s.minima = shared_memory + threadIdx.y * (u32)(places + stored + tile / 2);
    s.shingles = s.minima + places;
    s.codes = (u32*)(s.shingles + stored);
    for (int k = (int)threadIdx.x; k < places; k += GROUP) s.minima[k] = EMPTY;
    group_sync();

    int count = one_round(s, data, starts[d], ends[d], 0, 0);
    bool at_hand = count >= 0 && count <= stored;
    int limit = at_hand ? 2 * places : most_rounds;
    for (int round = 1;; round++) {
        bool empty = false;
        for (int k = (int)threadIdx.x; k < places; k += GROUP) empty |= s.minima[k] == EMPTY;
        if (!group_any(empty)) break;
        if (round >= limit) {  // few shingles, again and again: the CPU, which tells them apart first, is faster
            if (threadIdx.x == 0) unfinished[d] = 1;
            break;
        }
        if (at_hand) {
            for (int k = (int)threadIdx.x; k < count; k += GROUP) put(s, s.shingles[k], (u64)round, salts[round]);
        } else {
            one_round(s, data, starts[d], ends[d], (u64)round, salts[round]);
        }
        group_sync();
    }

    group_sync();
    for (int band = (int)threadIdx.x; band < places / rows; band += GROUP) {
        u64 h = mixed((u64)(band + 1) * STEP);
        for (int k = band * rows; k < (band + 1) * rows; k++) {
            h = (h ^ s.minima[k]) * FOLD;
            h ^= h >> 29;
        }
        bands[(u64)band * texts + d] = mixed(h);
    }
    for (int k = (int)threadIdx.x; k < places; k += GROUP) {
        small[(u64)d * (u64)places + k] = (u8)((s.minima[k] * FOLD) >> 56);
    }
}
