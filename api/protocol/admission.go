// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package protocol

import "strings"

// Keys of ClusterColocationProfile objects.
const (
	// AnnotationSkipUpdateResources, whatever its value, leaves the requests of the profile's pods as they are.
	AnnotationSkipUpdateResources = "config.koordinator.sh/skip-update-resources"
	// LabelControllerManaged "true" has the profile applied again to pods that wait for a node when it changes.
	LabelControllerManaged = "config.koordinator.sh/controller-managed"
)

// Keys of our own that admission reads and writes.
const (
	// AnnotationProfiles is written on a pod: the profiles applied to it, separated by commas; one that its probability left
	// out has a "!" before it.
	AnnotationProfiles = "koord-rt.dev/profiles"
	// AnnotationSchedulerReason is written on a pod: why its scheduler name was set.
	AnnotationSchedulerReason = "koord-rt.dev/scheduler-reason"
	// AnnotationPodLimits on a Namespace says which annotations that move a node's knobs its pods may carry, see [PodLimits].
	AnnotationPodLimits = "koord-rt.dev/pod-limits"
)

// Pod keys that the scheduler writes and nobody else may.
const (
	AnnotationReservePod           = "scheduling.koordinator.sh/reserve-pod"
	AnnotationReservationAllocated = "scheduling.koordinator.sh/reservation-allocated"
	AnnotationBindTimestamp        = "scheduling.koordinator.sh/bind-timestamp"
	AnnotationGPUMinors            = "scheduling.koordinator.sh/gpu-minors"
	DomainInternalScheduling       = "internal.scheduling.koordinator.sh/"
	AnnotationSchedulingHint       = "internal.scheduling.koordinator.sh/scheduling-hint"
	AnnotationOldGangGroupID       = "scheduling.koordinator.sh/bind-gang-group-id"
	AnnotationOldGangMemberCount   = "scheduling.koordinator.sh/bind-gang-member-count"
)

// LabelQuotaPreemptible "false" keeps a pod from being a victim of its quota.
const LabelQuotaPreemptible = "quota.scheduling.koordinator.sh/preemptible"

// SchedulerOwned reports whether an annotation is the scheduler's word: where a pod runs, on which CPUs and devices. The
// scheduling hint is a wish of whoever plans, and is not. Device plugins' own keys (huawei.com, HAMi …) belong to other
// vendors' schedulers as well and are not listed.
func SchedulerOwned(key string) bool {
	switch key {
	case AnnotationResourceStatus, AnnotationDeviceAllocated, AnnotationReservationAllocated, AnnotationBindTimestamp,
		AnnotationGPUMinors, AnnotationReservePod, AnnotationOldGangGroupID, AnnotationOldGangMemberCount:
		return true
	case AnnotationSchedulingHint:
		return false
	}
	return strings.HasPrefix(key, DomainInternalScheduling)
}

// Koordinators reports whether a label or annotation lies in koordinator.sh or a domain below it.
func Koordinators(key string) bool {
	domain, _, ok := strings.Cut(key, "/")
	return ok && (domain == "koordinator.sh" || strings.HasSuffix(domain, ".koordinator.sh"))
}

// DeviceResource reports whether a resource is a device that Koordinator's scheduler shares out.
func DeviceResource(name string) bool {
	switch name {
	case ResourceGPU, ResourceGPUShared, ResourceGPUCore, ResourceGPUMemory, ResourceGPUMemoryRatio, ResourceRDMA,
		ResourceFPGA, ResourceNvidiaGPU, ResourceAMDGPU, ResourceDCU, ResourceHuaweiNPUCore, ResourceHuaweiNPUCPU,
		ResourceHuaweiNPUDVPP, ResourceDeprecatedRDMA, ResourceDeprecatedFPGA, ResourceDeprecatedGPU,
		ResourceDeprecatedGPUCore, ResourceDeprecatedGPUMemory, ResourceDeprecatedGPUMemoryRatio:
		return true
	}
	return false
}
