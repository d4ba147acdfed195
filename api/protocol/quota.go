// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package protocol

// Labels of ElasticQuota objects; the first also of pods.
const (
	LabelQuotaName        = "quota.scheduling.koordinator.sh/name"
	LabelQuotaParent      = "quota.scheduling.koordinator.sh/parent"
	LabelQuotaIsParent    = "quota.scheduling.koordinator.sh/is-parent"
	LabelQuotaIsRoot      = "quota.scheduling.koordinator.sh/is-root"
	LabelQuotaTreeID      = "quota.scheduling.koordinator.sh/tree-id"
	LabelQuotaAllowLent   = "quota.scheduling.koordinator.sh/allow-lent-resource"
	LabelQuotaForceUpdate = "quota.scheduling.koordinator.sh/allow-force-update"
	LabelQuotaProfile     = "quota.scheduling.koordinator.sh/profile"
)

// Annotations of ElasticQuota objects.
const (
	AnnotationQuotaSharedWeight = "quota.scheduling.koordinator.sh/shared-weight"
	AnnotationQuotaNamespaces   = "quota.scheduling.koordinator.sh/namespaces"
	AnnotationQuotaStrictKeys   = "quota.scheduling.koordinator.sh/max-strict-check-resource-keys"
	AnnotationQuotaTotal        = "quota.scheduling.koordinator.sh/total-resource"
	// AnnotationQuotaUnschedulable is the part of the total on nodes that take no pods now.
	AnnotationQuotaUnschedulable = "quota.scheduling.koordinator.sh/unschedulable-resource"
	// AnnotationQuotaResourceKeys of an ElasticQuotaProfile are the resources that its quota limits.
	AnnotationQuotaResourceKeys = "quota.scheduling.koordinator.sh/resource-keys"
)

// Quotas that the scheduler makes itself.
const (
	QuotaRoot    = "koordinator-root-quota"
	QuotaSystem  = "koordinator-system-quota"
	QuotaDefault = "koordinator-default-quota"
)
