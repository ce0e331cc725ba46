#include "support/border_characters.h"

namespace k3::test {

const std::vector<std::string>& border_characters() {
  static const std::vector<std::string> kAll = {"a",          "s",          "T",
                                                "l",          "\u01c5",     "\u02b0",
                                                "\u3042",     "\ud55c",     "\u4e2d",
                                                "\u3005",     "\u3007",     "\u2f00",
                                                "\u0301",     "\u0903",     "\u20dd",
                                                "1",          "\u0663",     "\u2177",
                                                "!",          "'",          "\u017f",
                                                " ",          "\t",         "\n",
                                                "\r",         "\u0085",     "\u00a0",
                                                "\u3000",     "\x1c",       "\u200d",
                                                "\ufeff",     "\U0001f600", "\U00016ff0",
                                                "\U00020000", "\xE4",       "\xB8",
                                                "\xFF",       "\u0378",     std::string(1, '\0')};
  return kAll;
}

}  // namespace k3::test
