// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package systemd sets properties of the units that systemd manages cgroups by, so that a daemon-reload or a later
// property change does not undo what was written to the cgroup's files.
//
// Inputs are a unit and plan settings; the output is a D-Bus call to PID 1, or what PID 1 holds for a unit. It is for the time after a reply, never for
// inside a runtime's event (D4, D6): the bus has no deadline that would fit. It imports model,
// go-systemd's dbus and the library under it, godbus.
package systemd
