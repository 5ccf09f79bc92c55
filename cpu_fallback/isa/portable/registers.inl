// Words as portable compiler vectors; no registers to shuffle.
#pragma once
#include "generic/words.inl"

namespace gpuqs {
namespace {

constexpr int kRegisterBytes = 16;  // for sums: those that all x86-64 and AArch64 processors have

}  // namespace
}  // namespace gpuqs
