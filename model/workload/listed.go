// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package workload

// ListedPod is a sandbox as a runtime's list names it. Its Pod has no Cgroup, Base, PID and Ask: those are in the sandbox's own
// record.
type ListedPod struct {
	Pod     *Pod
	Attempt uint32
	Ready   bool
}

// ListedContainer is a container as a runtime's list names it. Its Container has no Base, Cgroup and PID: those are in the
// container's own record.
type ListedContainer struct {
	Container *Container
	Sandbox   string
	Attempt   uint32
}
