// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package pods

import (
	"time"

	"github.com/koord-rt/koord-rt/koordlet/internal/amount"
)

// The fields of a v1 Pod that are read; everything else is skipped. A field that is new to us costs nothing.
type (
	wirePod struct {
		Metadata wireMeta      `json:"metadata"`
		Spec     wireSpec      `json:"spec"`
		Status   wirePodStatus `json:"status"`
	}
	wireMeta struct {
		Name        string            `json:"name"`
		Namespace   string            `json:"namespace"`
		UID         string            `json:"uid"`
		Deleted     instant           `json:"deletionTimestamp"`
		Labels      map[string]string `json:"labels"`
		Annotations map[string]string `json:"annotations"`
		Owners      []wireOwner       `json:"ownerReferences"`
	}
	wireOwner struct {
		Kind       string `json:"kind"`
		Controller bool   `json:"controller"`
	}
	wireSpec struct {
		InitContainers                []wireContainer `json:"initContainers"`
		Containers                    []wireContainer `json:"containers"`
		EphemeralContainers           []wireContainer `json:"ephemeralContainers"`
		Resources                     *wireResources  `json:"resources"`
		Overhead                      amount.List     `json:"overhead"`
		Priority                      *int32          `json:"priority"`
		HostNetwork                   bool            `json:"hostNetwork"`
		TerminationGracePeriodSeconds *int64          `json:"terminationGracePeriodSeconds"`
	}
	wireContainer struct {
		Name          string        `json:"name"`
		RestartPolicy string        `json:"restartPolicy"`
		Resources     wireResources `json:"resources"`
	}
	wireResources struct {
		Requests amount.List `json:"requests"`
		Limits   amount.List `json:"limits"`
	}
	wirePodStatus struct {
		Phase                      string       `json:"phase"`
		QOSClass                   string       `json:"qosClass"`
		PodIP                      string       `json:"podIP"`
		PodIPs                     []wireIP     `json:"podIPs"`
		StartTime                  instant      `json:"startTime"`
		InitContainerStatuses      []wireStatus `json:"initContainerStatuses"`
		ContainerStatuses          []wireStatus `json:"containerStatuses"`
		EphemeralContainerStatuses []wireStatus `json:"ephemeralContainerStatuses"`
	}
	wireIP struct {
		IP string `json:"ip"`
	}
	wireStatus struct {
		Name               string      `json:"name"`
		ContainerID        string      `json:"containerID"`
		State              wireState   `json:"state"`
		AllocatedResources amount.List `json:"allocatedResources"`
	}
	wireState struct {
		Running *struct{} `json:"running"`
	}
)

// instant is a time as the API writes it; null and what is no time are the zero time.
type instant struct{ time.Time }

// UnmarshalJSON never fails: a bad time must not lose a pod.
func (i *instant) UnmarshalJSON(data []byte) error {
	if t, err := time.Parse(`"`+time.RFC3339+`"`, string(data)); err == nil {
		i.Time = t.UTC()
	}
	return nil
}
