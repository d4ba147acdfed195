// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package kept is what the controllers' cache keeps of pods and NodeMetrics, which are most of what a cluster has: values that formulas
// take, made once when an object comes, instead of the API's structs, whose lists of resources are ten times their content.
//
// Inputs are objects of the API and the cache of a manager whose transforms are [PodOf] and [NodeMetricOf]; outputs are what was kept, which
// is shared and may not be changed. Several controllers read the same: it must not import them.
package kept
