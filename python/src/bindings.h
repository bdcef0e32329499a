// The parts of the Python module `hetu._hetu`. Each part is in one bind_*.cpp file, and module.cpp
// calls them.
#pragma once
#include <nanobind/nanobind.h>

namespace hetu {

/// Binds environment variables: env, env_table.
void bind_env(nanobind::module_& m);

/// Binds every part that needs training. In a build without training, access to a name of these
/// parts throws AttributeError, which names the remedy.
void bind_training_parts(nanobind::module_& m);

/// Binds cluster files and devices: read_cluster, device_names, cuda_problem.
void bind_config(nanobind::module_& m);

/// Binds the processes other than workers, for heturun: service_keys, serve_coordinator,
/// serve_parameters.
void bind_services(nanobind::module_& m);

/// Binds graphs and operators: Graph, Builder, operator_records.
void bind_graph(nanobind::module_& m);

/// Binds plans: Schedule, and the functions of the hetu tool on plans.
void bind_schedule(nanobind::module_& m);

/// Binds options: option_tables, option_fields, check_options.
void bind_options(nanobind::module_& m);

/// Binds data: Loader, bert_loader, stream_loader, and ProgressLine.
void bind_data(nanobind::module_& m);

/// Binds text: WordPiece, bert_text_loader, count_words.
void bind_text(nanobind::module_& m);

/// Binds evaluate, which runs a graph with the reference kernels for checks.
void bind_evaluate(nanobind::module_& m);

/// Binds links: Transport, connect, thread_links.
void bind_links(nanobind::module_& m);

/// Binds parameter servers for programs of the user: ParameterClient, optimizer_state_names.
void bind_ps(nanobind::module_& m);

/// Binds saved models: Predictor, save_model.
void bind_predict(nanobind::module_& m);

/// Binds the options and checks of a training before a job exists: TrainingOptions, check_training.
void bind_training(nanobind::module_& m);

/// Binds checkpoints as bytes: CheckpointReader, SafetensorsFile, save_tensors.
void bind_checkpoint(nanobind::module_& m);

/// Binds training: Job and its checkpoints.
void bind_executor(nanobind::module_& m);

/// Binds stages that Python computes: ModuleJob.
void bind_module(nanobind::module_& m);

/// Binds access to weights and gradients of a job by name: weights, gradients, gradient_norms,
/// set_weights.
void bind_weights(nanobind::module_& m);

/// Binds the sizes of a graph and of a job: graph_nodes, plan_memory.
void bind_summary(nanobind::module_& m);

/// Binds signals that end a training in order: watch_signal, forget_signal, stop_asked.
void bind_stop(nanobind::module_& m);

/// Binds files of weights: WeightReader.
void bind_weight_files(nanobind::module_& m);

}  // namespace hetu
