// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package reapply keeps pods that still wait for a node at what a changed ClusterColocationProfile says: upstream's controller
// colocationprofile. It is off unless the gate ColocationProfileController is on, and does something for profiles with the label
// config.koordinator.sh/controller-managed only, or for all where that is asked for.
//
// What becomes of a pod is policy/profile's [profile.Reapply]; here are the rounds, the reads past the cache (pods that wait are in no
// cache of the manager), the pace, and one merge patch per pod of the labels and annotations that differ. Inputs are profiles, the
// metadata of pods, and namespaces; outputs patches, counters and log lines. It must not import a webhook or another controller.
package reapply
