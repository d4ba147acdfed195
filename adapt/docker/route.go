// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package docker

import "strings"

// Methods by name: net/http is much to link for two words.
const (
	methodPost   = "POST"
	methodDelete = "DELETE"
)

// Verb is what a request does to a container, as far as it is decoded.
type Verb uint8

// Verbs. VerbNone is every request that passes undecoded.
const (
	VerbNone Verb = iota
	VerbCreate
	VerbUpdate
	VerbStart
	VerbRestart
	VerbStop
	VerbKill
	VerbRemove
)

// String is the verb's lower-case name, "none" for VerbNone.
func (v Verb) String() string {
	return [...]string{"none", "create", "update", "start", "restart", "stop", "kill", "remove"}[min(int(v), int(VerbRemove))]
}

// Route is a request of the Engine API.
type Route struct {
	Verb Verb
	// ID is the container's id, a prefix of it, or its name, as the client wrote it; empty for VerbCreate.
	ID string
}

// Match reads a request's method and decoded path, with or without a version prefix ("/v1.41/containers/create").
func Match(method, path string) Route {
	rest, ok := strings.CutPrefix(unversioned(path), "/containers/")
	if !ok {
		return Route{}
	}
	if method == methodDelete {
		if rest == "" || strings.Contains(rest, "/") {
			return Route{}
		}
		return Route{VerbRemove, rest}
	}
	if method != methodPost {
		return Route{}
	}
	if rest == "create" {
		return Route{Verb: VerbCreate}
	}
	id, action, ok := strings.Cut(rest, "/")
	if !ok || id == "" {
		return Route{}
	}
	for v := VerbUpdate; v <= VerbKill; v++ {
		if v.String() == action {
			return Route{v, id}
		}
	}
	return Route{}
}

// Streams reports a request that turns its connection into a raw stream, with or without an Upgrade header: attach and
// the start of an exec.
func Streams(method, path string) bool {
	if method != methodPost {
		return false
	}
	parts := strings.Split(strings.TrimPrefix(unversioned(path), "/"), "/")
	return len(parts) == 3 && (parts[0] == "containers" && parts[2] == "attach" || parts[0] == "exec" && parts[2] == "start")
}

// unversioned cuts "/v1.41" off a path. The daemon accepts digits and dots after the v.
func unversioned(path string) string {
	rest, ok := strings.CutPrefix(path, "/v")
	if !ok {
		return path
	}
	version, _, ok := strings.Cut(rest, "/")
	if !ok || version == "" || strings.Trim(version, "0123456789.") != "" {
		return path
	}
	return rest[len(version):]
}
