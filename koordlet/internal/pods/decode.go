// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package pods

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/koordlet/internal/amount"
	"github.com/koord-rt/koord-rt/policy/evict"
)

// ErrPod is wrapped by every error about a pod object that cannot be used.
var ErrPod = errors.New("not a usable pod")

// Bounds of one pod.
const (
	// MaxObject is the longest pod object that is read. The API server accepts longer ones: etcd takes 1.5 MiB, and JSON
	// writes each <, > and & of a text as six bytes. Such a pod is left out and told of; the others are read.
	MaxObject = 4 << 20
	// maxContainers bounds what is kept; the API server accepts far more, nobody runs them.
	maxContainers = 512
	maxID         = 128
	// maxIPs: Kubernetes gives one of each family.
	maxIPs = 8
	// maxGrace keeps a grace period a duration.
	maxGrace = int64(365 * 24 * time.Hour / time.Second)
)

// Annotations by which the kubelet marks pods that are not the API server's (k8s.io/kubernetes pkg/kubelet/types).
const (
	annotationHash   = "kubernetes.io/config.hash"
	annotationMirror = "kubernetes.io/config.mirror"
	annotationSource = "kubernetes.io/config.source"
)

// Decode reads one pod object, of the kubelet or the API server. A resource or label that cannot be read counts as absent
// and is named in problems; what a cgroup path or a request is built from must be well formed, else the pod is an error.
func Decode(raw []byte) (p *Pod, problems []string, err error) {
	var w wirePod
	if err := json.Unmarshal(raw, &w); err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrPod, err)
	}
	d := &decoder{}
	if p, err = d.pod(&w); err != nil {
		return nil, nil, fmt.Errorf("%w: %.64q/%.64q: %w", ErrPod, w.Metadata.Namespace, w.Metadata.Name, err)
	}
	return p, d.problems, nil
}

// decoder gathers problems.
type decoder struct {
	problems []string
}

func (d *decoder) problem(format string, args ...any) {
	if len(d.problems) < 8 {
		d.problems = append(d.problems, fmt.Sprintf(format, args...))
	}
}

func (d *decoder) pod(w *wirePod) (*Pod, error) {
	m, s := &w.Metadata, &w.Spec
	p := &Pod{
		UID: m.UID, APIUID: m.UID, Namespace: m.Namespace, Name: m.Name, HostNetwork: s.HostNetwork,
		Phase: phaseOf(w.Status.Phase), Started: w.Status.StartTime.Time, Deleted: m.Deleted.Time,
		Labels: ours(m.Labels), Annotations: ours(m.Annotations),
	}
	for _, o := range m.Owners {
		p.DaemonSet = p.DaemonSet || o.Controller && o.Kind == "DaemonSet"
	}
	source, hash := m.Annotations[annotationSource], m.Annotations[annotationHash]
	switch {
	case m.Annotations[annotationMirror] != "":
		p.Static = true
		if hash != "" {
			p.UID = hash
		}
	case source != "" && source != "api":
		p.Static, p.APIUID = true, ""
	}
	switch {
	case !wellFormed(p.UID, maxID), p.APIUID != "" && !wellFormed(p.APIUID, maxID):
		return nil, fmt.Errorf("bad UID %.80q", p.UID)
	case !wellFormed(p.Namespace, protocol.MaxName), !wellFormed(p.Name, protocol.MaxName):
		return nil, errors.New("bad name")
	}
	if g := s.TerminationGracePeriodSeconds; g != nil && *g > 0 {
		p.Grace = time.Duration(min(*g, maxGrace)) * time.Second
	}
	p.IPs = d.addresses(&w.Status)
	d.class(p, s)
	if err := d.containers(p, w); err != nil {
		return nil, err
	}
	p.Own = d.own(s.Resources)
	p.Overhead = d.amounts("overhead", s.Overhead)
	switch w.Status.QOSClass {
	case "Guaranteed":
		p.Kube = protocol.KubeGuaranteed
	case "Burstable":
		p.Kube = protocol.KubeBurstable
	case "BestEffort":
		p.Kube = protocol.KubeBestEffort
	default:
		p.Kube = p.kubeQoS()
	}
	return p, nil
}

// addresses are status.podIPs, or status.podIP of a cluster that has no list.
func (d *decoder) addresses(w *wirePodStatus) (out []string) {
	all := w.PodIPs
	if len(all) == 0 && w.PodIP != "" {
		all = []wireIP{{w.PodIP}}
	}
	for _, ip := range all[:min(len(all), maxIPs)] {
		a, err := netip.ParseAddr(ip.IP)
		if err != nil || a.Zone() != "" || a.IsUnspecified() {
			d.problem("status.podIPs: no address")
			continue
		}
		out = append(out, a.Unmap().String())
	}
	return out
}

// class reads QoS label, priorities and what may evict the pod.
func (d *decoder) class(p *Pod, s *wireSpec) {
	var ok bool
	if p.QoS, ok = protocol.ParseQoS(p.Labels[protocol.LabelQoSClass]); !ok {
		d.problem("%s: unknown class", protocol.LabelQoSClass)
	}
	if s.Priority != nil {
		p.Priority = *s.Priority
	}
	if p.PriorityClass, ok = protocol.ParsePriorityClass(p.Labels[protocol.LabelPriorityClass]); !ok {
		d.problem("%s: unknown class", protocol.LabelPriorityClass)
	}
	if p.PriorityClass == protocol.PriorityNone {
		p.PriorityClass = protocol.PriorityClassOf(p.Priority)
	}
	p.SubPriority = d.number(p.Labels, protocol.LabelPriority)
	p.EvictionPriority = d.number(p.Annotations, protocol.AnnotationEvictionPriority)
	policy, given := p.Annotations[protocol.AnnotationEvictionPolicy]
	if _, ok := evict.DecodePolicy(policy, given); !ok {
		d.problem("%s: %.64q is no JSON list of features: none may evict the pod", protocol.AnnotationEvictionPolicy, policy)
	}
}

// number reads a label or an annotation, 0 without it.
func (d *decoder) number(of map[string]string, key string) int32 {
	text, ok := of[key]
	if !ok {
		return 0
	}
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		d.problem("%s: %.64q is no whole number of 32 bits", key, text)
		return 0
	}
	return int32(n)
}

// ours copies the entries whose keys belong to Koordinator's domains or to our own. A value that is too long to be read stays too long, and so
// is not taken for one that is not there: without eviction-policy anything may evict the pod.
func ours(m map[string]string) map[string]string {
	var out map[string]string
	for key, value := range m {
		domain, _, ok := strings.Cut(key, "/")
		if !ok {
			continue
		}
		if domain != "koordinator.sh" && !strings.HasSuffix(domain, ".koordinator.sh") && domain != "koord-rt.dev" {
			continue
		}
		if out == nil {
			out = map[string]string{}
		}
		out[key] = value[:min(len(value), protocol.MaxValueBytes+1)]
	}
	return out
}

func (d *decoder) containers(p *Pod, w *wirePod) error {
	s := &w.Spec
	n := len(s.InitContainers) + len(s.Containers) + len(s.EphemeralContainers)
	if n > maxContainers {
		return fmt.Errorf("%d containers, at most %d are kept", n, maxContainers)
	}
	p.Containers = make([]Container, 0, n)
	statuses := statusesByName(w.Status.InitContainerStatuses)
	for i := range s.InitContainers {
		kind := Init
		if s.InitContainers[i].RestartPolicy == "Always" {
			kind = Sidecar
		}
		p.Containers = append(p.Containers, d.container(&s.InitContainers[i], kind, statuses))
	}
	statuses = statusesByName(w.Status.ContainerStatuses)
	for i := range s.Containers {
		p.Containers = append(p.Containers, d.container(&s.Containers[i], Regular, statuses))
	}
	statuses = statusesByName(w.Status.EphemeralContainerStatuses)
	for i := range s.EphemeralContainers {
		p.Containers = append(p.Containers, d.container(&s.EphemeralContainers[i], Ephemeral, statuses))
	}
	for i := range p.Containers {
		c := &p.Containers[i]
		if !wellFormed(c.Name, protocol.MaxName) || c.ID != "" && !wellFormed(c.ID, maxID) {
			return fmt.Errorf("bad container %.64q", c.Name)
		}
	}
	return nil
}

// statusesByName finds the first status of each name. MaxObject has room for a million of them, too many to be looked through for
// each container.
func statusesByName(list []wireStatus) map[string]*wireStatus {
	out := make(map[string]*wireStatus, min(len(list), maxContainers))
	for i := range list {
		if s := &list[i]; out[s.Name] == nil {
			out[s.Name] = s
		}
	}
	return out
}

func (d *decoder) container(w *wireContainer, kind Kind, statuses map[string]*wireStatus) Container {
	c := Container{Name: w.Name, Kind: kind}
	if kind != Ephemeral {
		c.Requests = d.amounts(w.Name, w.Resources.Requests)
		c.Limits = d.amounts(w.Name, w.Resources.Limits)
	}
	s := statuses[w.Name]
	if s == nil {
		return c
	}
	c.ID = s.ContainerID
	if _, id, ok := strings.Cut(s.ContainerID, "://"); ok {
		c.ID = id
	}
	c.Running = s.State.Running != nil
	// While a resize waits, spec holds the wish and the status what was granted. status.resources is not read: it is what
	// the runtime reports, and would bring our own values back as the user's.
	if kind != Ephemeral {
		granted := d.amounts(w.Name, s.AllocatedResources)
		if granted.CPU > 0 {
			c.Requests.CPU = granted.CPU
		}
		if granted.Memory > 0 {
			c.Requests.Memory = granted.Memory
		}
	}
	return c
}

// own are pod-level resources.
func (d *decoder) own(w *wireResources) *Resources {
	if w == nil {
		return nil
	}
	r := Resources{Requests: d.amounts("pod", w.Requests), Limits: d.amounts("pod", w.Limits)}
	if r.Requests.CPU == 0 && r.Requests.Memory == 0 && r.Limits.CPU == 0 && r.Limits.Memory == 0 {
		return nil
	}
	return &r
}

func (d *decoder) amounts(of string, list amount.List) amount.Amounts {
	a, err := amount.Parse(list)
	if err != nil {
		d.problem("%.80s: %v", of, err)
	}
	return a
}

// wellFormed accepts what Kubernetes' names, UIDs and the runtimes' ids are made of. It becomes part of paths and URLs.
func wellFormed(s string, longest int) bool {
	if s == "" || len(s) > longest || s[0] == '.' {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '.' || c == '_') {
			return false
		}
	}
	return true
}
