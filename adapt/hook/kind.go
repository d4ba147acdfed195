// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package hook

import "strconv"

// Kind is one of the seven hooks.
type Kind uint8

// The hooks, in the order of a pod's life.
const (
	PreRunPodSandbox Kind = iota
	PreCreateContainer
	PreStartContainer
	PostStartContainer
	PreUpdateContainerResources
	PostStopContainer
	PostStopPodSandbox
	// NumKinds is their number.
	NumKinds
)

// service is the gRPC service; each method is the hook's name with "Hook" behind it.
const service = "/runtime.v1alpha1.RuntimeHookService/"

// kinds is the compiled table of names as they stand in hook configuration files.
var kinds = [NumKinds]string{
	PreRunPodSandbox: "PreRunPodSandbox", PreCreateContainer: "PreCreateContainer", PreStartContainer: "PreStartContainer",
	PostStartContainer: "PostStartContainer", PreUpdateContainerResources: "PreUpdateContainerResources",
	PostStopContainer: "PostStopContainer", PostStopPodSandbox: "PostStopPodSandbox",
}

// String is the hook's name in configuration files.
func (k Kind) String() string {
	if k >= NumKinds {
		return "hook(" + strconv.Itoa(int(k)) + ")"
	}
	return kinds[k]
}

// ParseKind reads the name of a hook that a proxy calls. Upstream's configuration also knows PreRemoveRunPodSandbox,
// which belongs to no call of the protocol: see [IsDormant].
func ParseKind(name string) (Kind, bool) {
	for k, n := range kinds {
		if n == name {
			return Kind(k), true
		}
	}
	return NumKinds, false
}

// IsDormant reports a hook name that upstream accepts in a configuration file and never calls.
func IsDormant(name string) bool {
	return name == "PreRemoveRunPodSandbox" || name == "NoneRuntimeHookType"
}

// Method is the gRPC method of the hook.
func (k Kind) Method() string { return service + k.String() + "Hook" }

// OfPod reports hooks that take a [PodRequest]; the others take a [ContainerRequest].
func (k Kind) OfPod() bool { return k == PreRunPodSandbox || k == PostStopPodSandbox }

// Before reports hooks that are called before the runtime: their failure can refuse the call and their answer is a plan.
// The others tell of what has happened; upstream ignores their answers and errors.
func (k Kind) Before() bool {
	return k != PostStartContainer && k != PostStopContainer && k != PostStopPodSandbox
}

// Set is a set of hooks; the zero value is empty.
type Set uint8

// With is the set with k added.
func (s Set) With(k Kind) Set {
	if k >= NumKinds {
		return s
	}
	return s | 1<<k
}

// Has reports membership.
func (s Set) Has(k Kind) bool { return k < NumKinds && s&(1<<k) != 0 }
