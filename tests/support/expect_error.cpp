#include "support/expect_error.h"

namespace k3::test {

testing::AssertionResult throws(ErrorKind kind,
                                const std::vector<std::string>& parts,
                                const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    const std::string message = error.what();
    if (error.kind() != kind) {
      return testing::AssertionFailure()
             << "kind " << static_cast<int>(error.kind()) << " instead of "
             << static_cast<int>(kind) << ": " << message;
    }
    for (const std::string& part : parts) {
      if (message.find(part) == std::string::npos) {
        return testing::AssertionFailure() << "no \"" << part << "\" in: " << message;
      }
    }
    return testing::AssertionSuccess() << message;
  } catch (const std::exception& other) {
    return testing::AssertionFailure() << "another exception: " << other.what();
  }
  return testing::AssertionFailure() << "no exception";
}

}  // namespace k3::test
