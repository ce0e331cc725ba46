// Asserts that a call throws k3::Error of one kind whose message holds all the given parts.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "k3/errors.h"

namespace k3::test {

// An assertion result to be used as EXPECT_TRUE(throws(kind, parts, call)).
testing::AssertionResult throws(ErrorKind kind,
                                const std::vector<std::string>& parts,
                                const std::function<void()>& call);

}  // namespace k3::test
