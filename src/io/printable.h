// Text from files, made fit for a message: base/printable.h under the name that io uses.
#pragma once

#include "base/printable.h"

namespace k3::io {

using k3::printable;

}  // namespace k3::io
