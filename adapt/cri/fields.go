// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package cri

// Numbers of the fields that are both read and changed (k8s.io/cri-api, runtime/v1/api.proto).
const (
	// Of ContainerConfig.
	fieldEnvs        = 6
	fieldMounts      = 7
	fieldDevices     = 8
	fieldLabels      = 9
	fieldAnnotations = 10
	fieldLinux       = 15
	fieldCDIDevices  = 17

	// Of LinuxContainerResources; hugepage limits (8) are never touched.
	fieldPeriod   = 1
	fieldQuota    = 2
	fieldShares   = 3
	fieldMemory   = 4
	fieldOOMScore = 5
	fieldCPUs     = 6
	fieldMems     = 7
	fieldUnified  = 9
	fieldSwap     = 10
)
