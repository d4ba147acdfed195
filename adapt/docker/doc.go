// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package docker translates between the Docker Engine API and the model: requests and inspect replies in, plans out as
// edits of a request's body.
//
// Inputs are method, path and JSON bodies as they come off the wire; outputs are model/workload values and bodies in which
// only the planned fields differ, every other byte included. All of it is pure: no file, no clock, no connection. Field
// names are those of the Engine API 1.41 (swagger "ContainerCreate", "ContainerUpdate", "ContainerInspect"), labels those
// that dockershim and cri-dockerd write. It may import model and api/protocol; never policy, kernel or daemon.
package docker
