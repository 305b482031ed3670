package e2e

import (
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/locksidecar/locksidecar/e2e/journal"
)

// completed waits until the job is complete and says when that was seen.
func (s *scenario) completed(within time.Duration, find func() (*batchv1.Job, error)) (time.Time, *batchv1.Job) {
	s.Helper()
	var job *batchv1.Job
	s.eventually(within, "the job is complete", func() (bool, string) {
		var err error
		if job, err = find(); err != nil {
			return false, err.Error()
		}
		if job == nil {
			return false, "there is no job yet"
		}
		for _, condition := range job.Status.Conditions {
			if condition.Type == batchv1.JobFailed && condition.Status == corev1.ConditionTrue {
				s.Fatalf("the job has failed: %s", condition.Message)
			}
			if condition.Type == batchv1.JobComplete && condition.Status == corev1.ConditionTrue {
				return true, ""
			}
		}
		return false, "it is not complete"
	})
	return time.Now(), job
}

// TestJobsEnd is scenario 10.
func TestJobsEnd(t *testing.T) {
	s := begin(t, "s10-job")
	spec := s.podSpec(30*time.Second, s.worker("-rounds=1", "-hold=1s"))
	spec.RestartPolicy = corev1.RestartPolicyNever
	template := batchv1.JobSpec{BackoffLimit: to(int32(0)), Template: corev1.PodTemplateSpec{Spec: spec}}
	jobs := s.client.BatchV1().Jobs(s.namespace)
	ends := func(after time.Time) func(journal.Event) bool {
		return func(e journal.Event) bool { return e.Kind == journal.End && e.At.After(after) }
	}
	check := func(what string, after, seen time.Time) {
		t.Helper()
		end := s.await(time.Second, "the application has ended", ends(after))
		t.Logf("%s was complete %s after the application's end", what, seen.Sub(end.At))
		if took := seen.Sub(end.At); took > 5*time.Second {
			t.Errorf("%s was complete %s after the application's end, want at most 5s", what, took)
		}
	}

	begun := time.Now()
	if _, err := jobs.Create(s.ctx(), &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "job"}, Spec: template}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	seen, _ := s.completed(time.Minute, func() (*batchv1.Job, error) { return jobs.Get(s.ctx(), "job", metav1.GetOptions{}) })
	check("the Job", begun, seen)

	begun = time.Now()
	cron := &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Name: "cron"}, Spec: batchv1.CronJobSpec{
		Schedule: "* * * * *", ConcurrencyPolicy: batchv1.ForbidConcurrent, JobTemplate: batchv1.JobTemplateSpec{Spec: template},
	}}
	if _, err := s.client.BatchV1().CronJobs(s.namespace).Create(s.ctx(), cron, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	seen, made := s.completed(2*time.Minute, func() (*batchv1.Job, error) {
		list, err := jobs.List(s.ctx(), metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		for i := range list.Items {
			if owner := metav1.GetControllerOf(&list.Items[i]); owner != nil && owner.Kind == "CronJob" {
				return &list.Items[i], nil
			}
		}
		return nil, nil
	})
	check("the CronJob's job "+made.Name, begun, seen)
	s.nobodyOverlaps()
	if got := len(journal.Holds(s.events())); got != 2 {
		t.Errorf("the lock was had %d times, want 2: once by each job", got)
	}
}
