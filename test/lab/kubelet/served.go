// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package kubelet

import (
	"context"
	"encoding/json"
	"fmt"
)

// addresses asks the runtime for the addresses of a pod that has its own.
func (k *Kubelet) addresses(ctx context.Context, r *Running) (out []string, err error) {
	if !k.options.PodNetwork {
		return nil, nil
	}
	status, _, err := k.options.CRI.PodStatus(ctx, r.SandboxID)
	if err != nil {
		return nil, err
	}
	if ip := status.GetNetwork().GetIp(); ip != "" {
		out = append(out, ip)
	}
	for _, more := range status.GetNetwork().GetAdditionalIps() {
		out = append(out, more.GetIp())
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("pod %s has no address: is there a CNI network?", r.Pod.Name)
	}
	return out, nil
}

// The part of a PodList that Served fills (k8s.io/api core/v1).
type (
	podList struct {
		APIVersion string      `json:"apiVersion"`
		Kind       string      `json:"kind"`
		Items      []podObject `json:"items"`
	}
	podObject struct {
		Metadata podMeta   `json:"metadata"`
		Spec     podSpec   `json:"spec"`
		Status   podStatus `json:"status"`
	}
	podMeta struct {
		Name        string            `json:"name"`
		Namespace   string            `json:"namespace"`
		UID         string            `json:"uid"`
		Labels      map[string]string `json:"labels,omitempty"`
		Annotations map[string]string `json:"annotations,omitempty"`
	}
	podSpec struct {
		HostNetwork    bool        `json:"hostNetwork,omitempty"`
		InitContainers []Container `json:"initContainers,omitempty"`
		Containers     []Container `json:"containers"`
	}
	podStatus struct {
		Phase    string  `json:"phase"`
		QOSClass QoS     `json:"qosClass"`
		PodIP    string  `json:"podIP,omitempty"`
		PodIPs   []podIP `json:"podIPs,omitempty"`
	}
	podIP struct {
		IP string `json:"ip"`
	}
)

// Served is what kubelet answers to GET /pods: its pods with their addresses, as JSON. Statuses of containers are left out.
func (k *Kubelet) Served() ([]byte, error) {
	list := podList{APIVersion: "v1", Kind: "PodList", Items: []podObject{}}
	k.mu.Lock()
	for _, r := range k.pods {
		o := podObject{
			Metadata: podMeta{r.Pod.Name, r.Pod.namespace(), r.Pod.UID, r.Pod.Labels, r.Pod.Annotations},
			Spec:     podSpec{HostNetwork: !k.options.PodNetwork}, Status: podStatus{Phase: "Running", QOSClass: r.QoS},
		}
		for _, c := range r.Pod.Containers {
			list := &o.Spec.Containers
			if c.Init {
				list = &o.Spec.InitContainers
			}
			*list = append(*list, Container{Name: c.Name, Resources: c.Resources})
		}
		for _, ip := range r.Addresses {
			o.Status.PodIPs = append(o.Status.PodIPs, podIP{ip})
		}
		if len(r.Addresses) > 0 {
			o.Status.PodIP = r.Addresses[0]
		}
		list.Items = append(list.Items, o)
	}
	k.mu.Unlock()
	text, err := json.Marshal(list)
	if err != nil {
		return nil, fmt.Errorf("encode pods: %w", err)
	}
	return text, nil
}
