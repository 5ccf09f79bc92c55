// A document's columns, and walks through nodes in preorder as gpuqs/layout/walk_gpu.py lays them out.
//
//   parallel_thread foreach column: shared x[column] <- document, if the columns fit; barrier
//   walk(tree): at, leaf <- the root, the tree's first leaf; repeat:
//       right <- x[column of at] > threshold of at, or x is missing and at sends it right
//       at += right ? n_left : 1; leaf += right ? n_left : 0, n_left being the leaves of at's left subtree
//   until that child is a leaf: its number is `leaf`
#pragma once
#include "reading.cuh"

// A node's third word: its column, and flags.
constexpr u32 MISSING_LEFT = 1u << 31, RIGHT_IS_LEAF = 1u << 30;

template <class Value>
__device__ Value threshold_of(uint4 node);
template <>
__device__ __forceinline__ float threshold_of<float>(uint4 node) {
    return __int_as_float(static_cast<int>(node.x));
}
template <>
__device__ __forceinline__ double threshold_of<double>(uint4 node) {
    return __longlong_as_double(static_cast<i64>(static_cast<u64>(node.y) << 32 | node.x));
}

// Documents of any type, given by its number in gpuqs.engines.gpu.kernels.INPUTS. The type is looked up for each value, which costs
// little where columns are read once per document, and saves having a kernel for each type.
struct AnyDocuments {
    Documents<char> given;
    int type;

    template <class Value>
    __device__ __forceinline__ Value number(const char* at) const {
        switch (type) {
            case 0: return static_cast<Value>(*reinterpret_cast<const float*>(at));
            case 1: return static_cast<Value>(*reinterpret_cast<const double*>(at));
            case 2: return static_cast<Value>(*reinterpret_cast<const signed char*>(at));
            case 3: return static_cast<Value>(*reinterpret_cast<const short*>(at));
            case 4: return static_cast<Value>(*reinterpret_cast<const int*>(at));
            case 5: return static_cast<Value>(*reinterpret_cast<const i64*>(at));
            case 6: return static_cast<Value>(*reinterpret_cast<const u8*>(at));
            case 7: return static_cast<Value>(*reinterpret_cast<const u16*>(at));
            case 8: return static_cast<Value>(*reinterpret_cast<const u32*>(at));
            default: return static_cast<Value>(*reinterpret_cast<const u64*>(at));
        }
    }
    template <class Value>
    __device__ __forceinline__ Value read(int document, int column) const {
        return as_read(number<Value>(given.at(document, column)), given.reading(column));
    }
};

// The walks of the thread block's document.
template <class Value>
struct Walks {
    const AnyDocuments& given;
    const uint4* nodes;
    Value* x;  // one value per column, in shared memory; null: values are read when needed

    __device__ __forceinline__ void read_columns(int n_columns) const {
        if (!x) return;
        for (int column = threadIdx.x; column < n_columns; column += blockDim.x) x[column] = given.read<Value>(blockIdx.x, column);
        __syncthreads();
    }

    // root: the tree's first node, or -1 if the tree is a single leaf; and its first leaf.
    __device__ __forceinline__ int exit_leaf(uint2 root) const {
        int at = static_cast<int>(root.x), leaf = static_cast<int>(root.y);
        for (bool inner = at >= 0; inner;) {
            const uint4 node = nodes[at];
            const int column = static_cast<int>(node.z & (RIGHT_IS_LEAF - 1)), n_left = static_cast<int>(node.w);
            const Value value = x ? x[column] : given.read<Value>(blockIdx.x, column);
            const bool right = (value > threshold_of<Value>(node)) | ((value != value) & !(node.z & MISSING_LEFT));
            at += right ? n_left : 1;
            leaf += right ? n_left : 0;
            inner = right ? !(node.z & RIGHT_IS_LEAF) : n_left != 1;
        }
        return leaf;
    }
};
