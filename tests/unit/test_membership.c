#include "fs/process/membership.h"
#include "tests/unit/check.h"

#define PARSED(block)                                  \
 ({                                                    \
struct membership parsed_;                              \
membership_parse((block), sizeof(block) - 1, &parsed_); \
parsed_;                                                \
 })

static void test_torchrun(void)
{
    const struct membership of =
        PARSED("ARANK=1\0RANK=5\0RANK=13\0WORLD_SIZE=8\0LOCAL_RANK=1\0LOCAL_WORLD_SIZE=4\0"
               "MASTER_ADDR=node1\0MASTER_PORT=29500\0TORCHELASTIC_RUN_ID=abc/d\0"
               "TORCHELASTIC_RESTART_COUNT=2\0ROLE_NAME=trainer");

    CHECK_INT(of.rank, 5);
    CHECK_INT(of.world, 8);
    CHECK_INT(of.local_rank, 1);
    CHECK_INT(of.local_world, 4);
    CHECK_INT(of.restarts, 2);
    CHECK(!of.by_launcher);
    CHECK_STR(of.job, "node1:29500@abc_d");
    CHECK_STR(of.launcher, "torchrun");
    CHECK_STR(of.role, "trainer");
    CHECK_STR(PARSED("RANK=0\0MASTER_ADDR=h\0MASTER_PORT=1\0TORCHELASTIC_RUN_ID=none").job, "h:1");
}

static void test_slurm(void)
{
    static const char step[] = "SLURM_JOB_ID=77\0SLURM_STEP_ID=3\0SLURM_PROCID=4\0SLURM_NTASKS=16\0"
                               "SLURM_LOCALID=0\0MASTER_ADDR=h\0MASTER_PORT=1";
    const struct membership of = PARSED(step);

    CHECK_INT(of.rank, 4);
    CHECK_INT(of.world, 16);
    CHECK(of.by_launcher);
    CHECK_STR(of.job, "77.3");
    CHECK_STR(of.launcher, "slurm");
    /* within an allocation, without a step of its own */
    CHECK_STR(PARSED("RANK=1\0SLURM_JOB_ID=77\0MASTER_ADDR=h\0MASTER_PORT=1").job, "77+h:1");
    CHECK_STR(PARSED("RANK=1\0SLURM_JOB_ID=77").job, "77");
}

static void test_others(void)
{
    const struct membership mpi =
        PARSED("OMPI_COMM_WORLD_RANK=3\0OMPI_COMM_WORLD_SIZE=4\0OMPI_COMM_WORLD_LOCAL_RANK=1\0"
               "OMPI_COMM_WORLD_LOCAL_SIZE=2\0PMIX_NAMESPACE=prterun-h-9@1\0SLURM_PROCID=0");

    CHECK_INT(mpi.rank, 3);
    CHECK_INT(mpi.local_world, 2);
    CHECK_STR(mpi.job, "prterun-h-9@1");
    CHECK_STR(mpi.launcher, "openmpi");
    CHECK_INT(PARSED("PMI_RANK=1\0PMI_SIZE=2").world, 2);
    CHECK_STR(PARSED("PMI_RANK=1\0PMI_SIZE=2").launcher, "pmi");
    CHECK_STR(PARSED("RANK=0\0RAY_JOB_ID=01000000").launcher, "ray");
    CHECK_STR(PARSED("RAY_JOB_ID=01000000\0HOME=/").launcher, "ray");
    CHECK_STR(PARSED("SLURM_STEP_ID=3\0HOME=/").launcher, "");
    CHECK_STR(PARSED("RANK=0\0PROBING_DP_RANK=2\0PROBING_TP_RANK=0").role, "dp=2,tp=0");
}

static void test_nothing(void)
{
    CHECK_INT(PARSED("").rank, -1);
    CHECK_INT(PARSED("LOCAL_RANK=1\0WORLD_SIZE=2").rank, -1);
    CHECK_INT(PARSED("RANK=1x\0RANKS=2").rank, -1);
    CHECK_INT(PARSED("RANK=").rank, -1);
    CHECK_INT(PARSED("RANK=-1").rank, -1);
    CHECK_STR(PARSED("RANK=0\0MASTER_ADDR=h").job, "");
    /* a name of a file */
    CHECK_STR(PARSED("RANK=0\0MASTER_ADDR=..\0MASTER_PORT=a b\x01~").job, "_.:a_b__");
}

int main(void)
{
    test_torchrun();
    test_slurm();
    test_others();
    test_nothing();
    return 0;
}
