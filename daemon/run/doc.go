// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package run is the life of a daemon: its components in order, signals, systemd's notifications, priority and memory
// limits.
//
// Input is a list of components; output is the joined error of all of them. It imports the standard library and
// golang.org/x/sys only. Every goroutine that a daemon starts belongs to a component of its group.
package run
