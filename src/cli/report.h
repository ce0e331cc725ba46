// What a run prints to standard output.
#pragma once

#include <cstddef>

#include "k3/engine.h"
#include "k3/generate.h"

namespace k3::cli {

void print_config(const Engine& engine);
void print_load(const LoadReport& report);
void print_step_header();
void print_step(const GenerateStep& step);
void print_generation(const GenerateResult& result);
void print_teacher_forcing(const TeacherForcing& result, double seconds);
void print_peak_memory();

// Flushes standard output; throws Error(kIo) when something could not be written.
void finish_standard_output();

}  // namespace k3::cli
