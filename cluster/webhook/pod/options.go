// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package pod is the admission of pods: the mutating webhook changes a new pod as policy/profile decides, the validating one
// refuses what must not be, at creation, update and resize. A third one gives a new Reservation what profiles give its pods.
//
// Inputs are admission requests, and ClusterColocationProfiles, PriorityClasses, Namespaces, ElasticQuotas with their profiles and Reservations from
// the cache of the manager. Outputs are patches, refusals and warnings. It writes nothing to the API server. It logs names,
// keys and what is wrong with them, never a pod: its environment can hold secrets.
//
// What it decides is policy/profile's; here are only the translation from and to API objects, the strategic merge patch, which
// needs the schema of a pod, and the reads. It may import cluster/webhook/answer and cluster/internal/{profiles,quantity,quotas}, no other room
// of cluster.
package pod

import (
	"context"
	"errors"
	"fmt"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/cluster/internal/quotas"
	"github.com/koord-rt/koord-rt/cluster/webhook/answer"
	"github.com/koord-rt/koord-rt/policy/profile"
)

// Paths of the webhooks, upstream's.
const (
	MutatePath      = "/mutate-pod"
	ValidatePath    = "/validate-pod"
	ReservationPath = "/mutate-reservation"
)

// Names of the webhooks in metrics.
const (
	mutating   = "mutate-pod"
	validating = "validate-pod"
	reserving  = "mutate-reservation"
)

// Options are what an administrator sets.
type Options struct {
	// SchedulerName is given to pods that need our scheduler; "" or default-scheduler: no pod is given to it. Set it only where
	// that scheduler runs: pods that name one that does not stay Pending.
	SchedulerName string
	// Schedulers are the users that may write the scheduler's annotations, as system:serviceaccount:NAMESPACE:NAME.
	Schedulers []string
	// PodLimits is what the pods of a namespace may carry that has no annotation of its own, see [protocol.PodLimits]; "" is
	// [protocol.DefaultPodLimits].
	PodLimits string
	// KeepRequests leaves every pod's requests as they are (upstream gate ColocationProfileSkipMutatingResources).
	KeepRequests bool
	// KeepExtended writes no extended-resource-spec (gate DisableExtendedResourceSpec).
	KeepExtended bool
	// KeepDevices leaves device requests as they are (gate DisableDeviceResourceSpec).
	KeepDevices bool
	// CheckDevices refuses device requests that mean nothing (gate ValidatePodDeviceResource, off upstream).
	CheckDevices bool
	// FreePriority lets the label koordinator.sh/priority of a pod change (gate ColocationProfileSkipValidatingPriority).
	FreePriority bool
	// Quota says which quota a pod comes to, and what is counted.
	Quota profile.QuotaRules
	// Trees holds new pods to the nodes of their quota's tree (gate MultiQuotaTree, off upstream).
	Trees bool
	// Reservations applies profiles to new Reservations (gate ReservationMutatingWebhook, off upstream).
	Reservations bool
}

// Add registers the webhooks at the manager's server.
func Add(mgr ctrl.Manager, o Options, answers *answer.Answers) error {
	limits := protocol.DefaultPodLimits()
	if o.PodLimits != "" {
		var err error
		if limits, err = protocol.ParsePodLimits(o.PodLimits); err != nil {
			return fmt.Errorf("pod limits: %w", err)
		}
	}
	if answers == nil {
		return errors.New("add pod webhooks: no answers given")
	}
	if err := mgr.Add(manager.RunnableFunc(func(ctx context.Context) error { return o.warm(ctx, mgr.GetCache()) })); err != nil {
		return fmt.Errorf("add pod webhooks: %w", err)
	}
	shared := cluster{cached: mgr.GetCache(), live: mgr.GetAPIReader()}
	decoder := admission.NewDecoder(mgr.GetScheme())
	server := mgr.GetWebhookServer()
	server.Register(MutatePath, &webhook.Admission{
		Handler: answers.Guard(mutating, &mutator{cluster: shared, name: mutating, decoder: decoder, options: o, answers: answers}),
	})
	reserves := o
	reserves.KeepRequests = true // upstream's: what is booked is what is written
	server.Register(ReservationPath, &webhook.Admission{
		Handler: answers.Guard(reserving, &reserver{&mutator{cluster: shared, name: reserving, options: reserves, answers: answers}}),
	})
	server.Register(ValidatePath, answers.Sized(validating, &webhook.Admission{
		Handler: answers.Guard(validating, &validator{cluster: shared, decoder: decoder, options: o, limits: limits, answers: answers, wait: quotas.Settling}),
	}))
	return nil
}
