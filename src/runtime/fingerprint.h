// What a saved session must agree on with the engine that goes on with it.
#pragma once

#include "k3/config.h"

#include "base/checksum.h"
#include "model/model_vectors.h"
#include "runtime/checkpoint.h"

namespace k3::runtime {

// XXH128 over the values of the config as it runs, over name, type, shape, shard (its file name) and
// offset of every bound tensor, and over the small vectors: another checkpoint of the same layout has
// others. The same for any budget, packed trunk, number of threads, instruction set and folder.
[[nodiscard]] ChecksumBytes fingerprint(const ModelConfig& config,
                                        const Checkpoint& checkpoint,
                                        const model::ModelVectors& vectors);

}  // namespace k3::runtime
