// No gathers: walks go over nodes and leaves.
#pragma once

namespace gpuqs {
namespace {

struct Gathers { static constexpr bool available = false; };

}  // namespace
}  // namespace gpuqs
